"""Parses `.proto` files (proto2, proto3 and editions): messages and enums, and no other declarations."""

from __future__ import annotations

from dataclasses import dataclass, field

from klamm.spark.formats.protobuf.tokens import Tokens
from klamm.spark.formats.shapes import SchemaError

Default = str | bytes | None


@dataclass(eq=False, slots=True)
class Field:
    """A field as declared; `type` is resolved from its scope."""

    name: str
    number: int
    type: str
    is_repeated: bool = False
    oneof: str | None = None
    default: Default = None
    map_key: str | None = None
    """The key type of a map, whose value type is `type`."""


@dataclass(eq=False, slots=True)
class Enum:
    """Numbers with names, as declared. A closed enum has no other numbers."""

    name: str
    is_closed: bool
    symbols: list[tuple[int, str]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Message:
    """A message by its full name, with its nested messages in order."""

    name: str
    fields: list[Field] = field(default_factory=list)
    declared: list[str] = field(default_factory=list)
    """What Confluent's header counts: nested messages and, for some clients, map entries, which are named ''."""


@dataclass(eq=False, slots=True)
class File:
    """The declarations of a file, by full names without a leading dot."""

    package: str = ""
    imports: list[str] = field(default_factory=list)
    messages: dict[str, Message] = field(default_factory=dict)
    enums: dict[str, Enum] = field(default_factory=dict)
    declared: list[str] = field(default_factory=list)
    """The top-level messages in order."""


def parse(text: str, name: str) -> File:
    """Parse a file. Raises SchemaError with the line number."""
    return _Parser(Tokens(text, name)).file()


class _Parser:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._file = File()
        self._syntax = "proto2"

    def file(self) -> File:
        tokens = self._tokens
        while tokens.kind != "end":
            match tokens.next:
                case ";":
                    tokens.take()
                case "syntax" | "edition":
                    tokens.take()
                    tokens.want("=")
                    self._syntax = tokens.string().decode()
                    tokens.want(";")
                case "package":
                    tokens.take()
                    self._file.package = tokens.full_name()
                    tokens.want(";")
                case "import":
                    self._import()
                case "message":
                    self._file.declared.append(self._message(self._file.package))
                case "enum":
                    self._enum(self._file.package)
                case "option" | "service" | "extend":
                    tokens.skip_statement()
                case word:
                    raise tokens.error(f"a message, an enum or an import is wanted, not '{word}'")
        return self._file

    def _import(self) -> None:
        tokens = self._tokens
        tokens.take()
        for word in ("public", "weak", "option"):
            tokens.maybe(word)
        self._file.imports.append(tokens.string().decode())
        tokens.want(";")

    def _message(self, scope: str) -> str:
        self._tokens.take()
        message = Message(_within(scope, self._tokens.name()))
        self._file.messages[message.name] = message
        self._tokens.want("{")
        self._members(message, None)
        return message.name

    def _members(self, message: Message, oneof: str | None) -> None:
        tokens = self._tokens
        while not tokens.maybe("}"):
            match tokens.next:
                case ";":
                    tokens.take()
                case "option" | "extensions" | "reserved" | "extend" if not self._is_field():
                    tokens.skip_statement()
                case "message" if not self._is_field():
                    message.declared.append(self._message(message.name))
                case "enum" if not self._is_field():
                    self._enum(message.name)
                case "oneof" if not self._is_field():
                    tokens.take()
                    name = tokens.name()
                    tokens.want("{")
                    self._members(message, name)
                case _:
                    self._field(message, oneof)

    def _is_field(self) -> bool:
        """Whether a keyword is the beginning of a type name here, as in `message.Kind kind = 1`."""
        return self._tokens.peek(1) == "."

    def _field(self, message: Message, oneof: str | None) -> None:
        tokens = self._tokens
        label = tokens.take() if tokens.next in ("optional", "required", "repeated") else ""
        if tokens.next == "group":
            self._group(message, label == "repeated", oneof)
            return
        key = self._map_key()
        kind = tokens.full_name()
        if key is not None:
            tokens.want(">")
        name = tokens.name()
        tokens.want("=")
        number = tokens.whole()
        default = self._field_options()
        tokens.want(";")
        is_repeated = label == "repeated" or key is not None
        message.fields.append(Field(name, number, kind, is_repeated, oneof, default, key))
        if key is not None:
            message.declared.append("")

    def _map_key(self) -> str | None:
        tokens = self._tokens
        if tokens.next != "map" or tokens.peek(1) != "<":
            return None
        tokens.take()
        tokens.take()
        key = tokens.name()
        tokens.want(",")
        return key

    def _group(self, message: Message, is_repeated: bool, oneof: str | None) -> None:
        """A group declares a message and a field of it; the field has the name in lower case."""
        tokens = self._tokens
        tokens.take()
        name = tokens.name()
        tokens.want("=")
        number = tokens.whole()
        self._field_options()
        group = Message(_within(message.name, name))
        self._file.messages[group.name] = group
        message.declared.append(group.name)
        tokens.want("{")
        self._members(group, None)
        message.fields.append(Field(name.lower(), number, f".{group.name}", is_repeated, oneof))

    def _field_options(self) -> Default:
        """The default in `[...]`, if there is one."""
        tokens = self._tokens
        default: Default = None
        if not tokens.maybe("["):
            return None
        depth = 1
        while depth:
            if depth == 1 and tokens.kind == "word" and tokens.next == "default" and tokens.peek(1) == "=":
                tokens.take()
                tokens.take()
                default = self._constant()
                continue
            word = "" if tokens.kind == "string" else tokens.next
            tokens.take()
            depth += (word in ("[", "{", "(")) - (word in ("]", "}", ")"))
        return default

    def _constant(self) -> Default:
        tokens = self._tokens
        if tokens.kind == "string":
            return tokens.string()
        sign = "-" if tokens.maybe("-") else ""
        tokens.maybe("+")
        return sign + tokens.take()

    def _enum(self, scope: str) -> None:
        tokens = self._tokens
        tokens.take()
        enum = Enum(_within(scope, tokens.name()), is_closed=self._syntax == "proto2")
        self._file.enums[enum.name] = enum
        tokens.want("{")
        while not tokens.maybe("}"):
            if tokens.maybe(";"):
                continue
            if tokens.next in ("option", "reserved") and tokens.peek(1) != "=":
                tokens.skip_statement()
                continue
            name = tokens.name()
            tokens.want("=")
            enum.symbols.append((tokens.whole(), name))
            self._field_options()
            tokens.want(";")
        if not enum.symbols:
            raise SchemaError(f"enum {enum.name} has no symbols")


def _within(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name

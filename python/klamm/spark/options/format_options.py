"""The options for the format of keys and values: `value.format` and the like. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, TypeVar

from klamm.spark.formats.schema_text import RegistryOptions, SchemaText

_T = TypeVar("_T")
_E = TypeVar("_E", bound=Enum)

REGISTRY_URL: Final = "schema.registry.url"
_USER_INFO: Final = "schema.registry.basic.auth.user.info"
_TOKEN: Final = "schema.registry.bearer.auth.token"
_CA_LOCATION: Final = "schema.registry.ssl.ca.location"


class Format(Enum):
    """The format of a key or value."""

    BINARY = "binary"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


HAVE_SCHEMAS: Final = frozenset({Format.AVRO, Format.PROTOBUF})


class OnBad(Enum):
    """What happens to a record whose key or value cannot be decoded."""

    FAIL = "fail"
    DROP = "drop"
    KEEP = "keep"


class Framing(Enum):
    """What precedes a value: Confluent's header, or nothing."""

    CONFLUENT = "confluent"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """How one column is decoded."""

    column: str
    """key or value; the option names begin with it."""
    format: Format = Format.BINARY
    schema: str | None = None
    """The fields of `json` as Spark DDL; the text of an Avro or Protobuf schema."""
    schema_file: str | None = None
    subject: str | None = None
    """The subject whose latest schema is the reader's; None: the subject of the topic."""
    message: str | None = None
    """A message of a Protobuf schema; None: the first."""
    framing: Framing = Framing.CONFLUENT
    on_bad: OnBad = OnBad.FAIL
    registry: RegistryOptions | None = None
    wanted: SchemaText | None = None
    """The reader's schema, set by planning."""

    @property
    def corrupt(self) -> str:
        """The column for bytes that cannot be decoded, if they are kept."""
        return "_corrupt" if self.column == "value" else f"_corrupt_{self.column}"


class Options(Protocol):
    """Options by name; errors name the option."""

    def __contains__(self, name: str) -> bool: ...
    def get(self, name: str, read: Callable[[str], _T], default: _T) -> _T:
        """The value parsed by `read`, whose ValueError states the problem."""

    def error(self, name: str, why: str) -> Exception:
        """An error about an option that is set."""

    def missing(self, name: str, why: str) -> Exception:
        """An error about an option that is missing."""


_OF_COLUMN: Final = ("format", "schema", "schema.file", "schema.subject", "message", "framing", "onError")
NAMES: Final = (
    *(f"{column}.{name}" for column in ("value", "key") for name in _OF_COLUMN),
    REGISTRY_URL,
    _USER_INFO,
    _TOKEN,
    _CA_LOCATION,
)
SECRETS: Final = frozenset({_USER_INFO, _TOKEN})


def parse_format(options: Options, column: str) -> FormatOptions:
    """The options of a column. Raises the errors that `options` creates."""

    def text(name: str) -> str | None:
        return options.get(f"{column}.{name}", _not_empty, None)

    parsed = FormatOptions(
        column=column,
        format=options.get(f"{column}.format", lambda value: one_of(Format, value), Format.BINARY),
        schema=text("schema"),
        schema_file=text("schema.file"),
        subject=text("schema.subject"),
        message=text("message"),
        framing=options.get(f"{column}.framing", lambda value: one_of(Framing, value), Framing.CONFLUENT),
        on_bad=options.get(f"{column}.onError", lambda value: one_of(OnBad, value), OnBad.FAIL),
        registry=_registry(options),
    )
    _check_used(options, parsed)
    return parsed


def _registry(options: Options) -> RegistryOptions | None:
    urls: tuple[str, ...] = ()
    urls = options.get(REGISTRY_URL, _urls, urls)
    user_info = options.get(_USER_INFO, _not_empty, None)
    token = options.get(_TOKEN, _not_empty, None)
    ca_location = options.get(_CA_LOCATION, _not_empty, None)
    if not urls:
        for name in (_USER_INFO, _TOKEN, _CA_LOCATION):
            if name in options:
                raise options.missing(REGISTRY_URL, f"{name} is set, but no registry")
        return None
    if user_info is not None and token is not None:
        raise options.error(_TOKEN, f"{_USER_INFO} is set too; set only one of them")
    return RegistryOptions(urls, user_info, token, ca_location)


def _check_used(options: Options, parsed: FormatOptions) -> None:
    """Refuse an option that has no effect for the format."""
    column, kind = parsed.column, parsed.format
    with_schema = "avro or protobuf"
    uses: dict[str, tuple[bool, str]] = {
        "schema": (kind is Format.JSON or kind in HAVE_SCHEMAS, f"json, {with_schema}"),
        "schema.file": (kind in HAVE_SCHEMAS, with_schema),
        "schema.subject": (kind in HAVE_SCHEMAS, with_schema),
        "message": (kind is Format.PROTOBUF, "protobuf"),
        "framing": (kind in HAVE_SCHEMAS, with_schema),
    }
    if kind is Format.BINARY and f"{column}.onError" in options:
        raise options.error(f"{column}.onError", f"it needs {column}.format")
    for name, (is_used, of) in uses.items():
        if f"{column}.{name}" in options and not is_used:
            raise options.error(f"{column}.{name}", f"it applies to {column}.format={of}, not to {kind.value}")
    if kind is Format.JSON and parsed.schema is None:
        raise options.missing(f"{column}.schema", f"{column}.format=json needs fields, such as 'id long, name string'")
    if kind in HAVE_SCHEMAS:
        _check_schema(options, parsed)


def _check_schema(options: Options, parsed: FormatOptions) -> None:
    """Exactly one option gives the reader's schema; framed values name their own schemas."""
    column, registry = parsed.column, parsed.registry
    sources = [name for name in ("schema", "schema.file", "schema.subject") if f"{column}.{name}" in options]
    if len(sources) > 1:
        first, second = (f"{column}.{name}" for name in sources[:2])
        raise options.error(second, f"{first} is set too; set only one schema")
    if registry is None and "schema.subject" in sources:
        raise options.missing(REGISTRY_URL, f"{column}.schema.subject is set, but no registry")
    if registry is None and not sources:
        raise options.missing(
            f"{column}.schema.file",
            f"{column}.format={parsed.format.value} needs a schema: that of a file, or of a registry ({REGISTRY_URL})",
        )


# ---- values ----


def one_of(words: type[_E], value: str) -> _E:
    """The member of an enum by name, ignoring case."""
    try:
        return words(value.lower())
    except ValueError:
        *most, last = [word.value for word in words]
        raise ValueError(f"say {', '.join(most)} or {last}") from None


def _not_empty(value: str) -> str | None:
    if not value:
        raise ValueError("it is empty")
    return value


def _urls(value: str) -> tuple[str, ...]:
    urls = tuple(url.strip() for url in value.split(","))
    for url in urls:
        if not re.fullmatch(r"https?://[^\s/]+\S*", url):
            raise ValueError("it must be http://host:port or https://host:port, or several of them separated by commas")
    return urls

"""A file with all of its imports; resolves names from the scope in which they are used."""

from __future__ import annotations

from collections.abc import Mapping

from klamm.spark.formats.protobuf.files import Enum, File, Message, parse
from klamm.spark.formats.protobuf.well_known import WELL_KNOWN
from klamm.spark.formats.shapes import SchemaError


class Pool:
    """The messages and enums of a file and its imports."""

    def __init__(self, text: str, imports: Mapping[str, str], name: str = "the Protobuf schema") -> None:
        """`imports`: the texts of imported files by import name."""
        self.root = parse(text, name)
        self._messages: dict[str, Message] = {}
        self._enums: dict[str, Enum] = {}
        self._add(self.root)
        missing, seen = list(self.root.imports), set()
        while missing:
            wanted = missing.pop()
            if wanted in seen:
                continue
            seen.add(wanted)
            found = imports.get(wanted, WELL_KNOWN.get(wanted))
            if found is None:
                raise SchemaError(f"{name} imports '{wanted}', which is not there")
            file = parse(found, wanted)
            self._add(file)
            missing += file.imports

    def _add(self, file: File) -> None:
        self._messages.update(file.messages)
        self._enums.update(file.enums)

    def message(self, name: str | None) -> Message:
        """A message by its full name; None means the first one of the file."""
        if name is None:
            if not self.root.declared:
                raise SchemaError("the Protobuf schema declares no message")
            name = self.root.declared[0]
        found = self._messages.get(name)
        if found is None:
            raise SchemaError(f"the Protobuf schema has no message '{name}'; it has {', '.join(self.root.messages)}")
        return found

    def find(self, name: str, scope: str) -> Message | Enum:
        """The type with this name as seen from a message: the innermost one that matches."""
        if name.startswith("."):
            name, scope = name[1:], ""
        while True:
            full = f"{scope}.{name}" if scope else name
            found = self._messages.get(full) or self._enums.get(full)
            if found is not None:
                return found
            if not scope:
                raise SchemaError(f"the Protobuf schema has the type '{name}', which nothing declares")
            scope = scope.rpartition(".")[0]

    def indexes(self, message: Message) -> list[list[int]]:
        """The indexes by which a Confluent header names a message of the file.

        There are two forms: Java's clients do not count map entries among nested messages, other clients do.
        """
        with_entries: list[int] = []
        without: list[int] = []
        name = message.name
        while True:
            outer = self._messages.get(name.rpartition(".")[0])
            declared = outer.declared if outer is not None else self.root.declared
            if name not in declared:
                return []  # a message of an imported file, which a header cannot name
            with_entries.insert(0, declared.index(name))
            without.insert(0, [one for one in declared if one].index(name))
            if outer is None:
                return [with_entries] if with_entries == without else [with_entries, without]
            name = outer.name

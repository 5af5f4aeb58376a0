"""A file with all that it imports: names are found from where they are used."""

from __future__ import annotations

from collections.abc import Mapping

from klamm.spark.formats.protobuf.files import Enum, File, Message, parse
from klamm.spark.formats.protobuf.well_known import WELL_KNOWN
from klamm.spark.formats.shapes import SchemaError


class Pool:
    """The messages and enums of a file and of what it imports."""

    def __init__(self, text: str, imports: Mapping[str, str], name: str = "the Protobuf schema") -> None:
        """`imports`: the texts of imported files by the names that they are imported with."""
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
        """A message by its full name; without one the first of the file."""
        if name is None:
            if not self.root.declared:
                raise SchemaError("the Protobuf schema declares no message")
            name = self.root.declared[0]
        found = self._messages.get(name)
        if found is None:
            raise SchemaError(f"the Protobuf schema has no message '{name}'; it has {', '.join(self.root.messages)}")
        return found

    def find(self, name: str, scope: str) -> Message | Enum:
        """What a name means within a message: the innermost one that it fits."""
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
        """How a Confluent header calls a message of the file.

        Two ways: Java's clients do not count the entries of maps among what is declared within a message, others do.
        """
        with_entries: list[int] = []
        without: list[int] = []
        name = message.name
        while True:
            outer = self._messages.get(name.rpartition(".")[0])
            declared = outer.declared if outer is not None else self.root.declared
            if name not in declared:
                return []  # of an imported file, which no header can call
            with_entries.insert(0, declared.index(name))
            without.insert(0, [one for one in declared if one].index(name))
            if outer is None:
                return [with_entries] if with_entries == without else [with_entries, without]
            name = outer.name

"""The tokens of a `.proto` file."""

from __future__ import annotations

import re
from typing import Final

from klamm.spark.formats.shapes import SchemaError

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>[{}\[\]()<>=;:,.+\-/])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(rb"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
_LETTERS: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


class Tokens:
    """The tokens from the next one on. Errors name the file and the line."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._at = 0
        self._tokens: list[tuple[str, str, int]] = []
        self._split(text)

    def _split(self, text: str) -> None:
        at, line = 0, 1
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise SchemaError(f"{self._file}, line {line}: '{text[at]}' is nothing that a .proto has")
            kind = found.lastgroup or ""
            if kind != "space":
                self._tokens.append((kind, found[0], line))
            line += found[0].count("\n")
            at = found.end()
        self._tokens.append(("end", "", line))

    def error(self, why: str) -> SchemaError:
        """An error at the next token."""
        why = "the file ends in the middle" if self.kind == "end" else why
        return SchemaError(f"{self._file}, line {self._tokens[self._at][2]}: {why}")

    @property
    def next(self) -> str:
        """The next token, without taking it; empty at the end."""
        return self._tokens[self._at][1]

    @property
    def kind(self) -> str:
        """The kind of the next token: string, number, word, sign or end."""
        return self._tokens[self._at][0]

    def peek(self, ahead: int) -> str:
        """The token that is `ahead` tokens later; empty after the end."""
        at = self._at + ahead
        return self._tokens[at][1] if at < len(self._tokens) else ""

    def take(self) -> str:
        """Take the next token."""
        word = self.next
        if self.kind == "end":
            raise self.error("")
        self._at += 1
        return word

    def maybe(self, word: str) -> bool:
        """Take the next token if it is `word`; returns whether it was."""
        if self.kind == "string" or self.next != word:
            return False
        self._at += 1
        return True

    def want(self, word: str) -> None:
        """Take this token. Raises SchemaError if the next one differs."""
        if not self.maybe(word):
            raise self.error(f"'{word}' is wanted, not '{self.next}'")

    def name(self) -> str:
        """A name without dots."""
        if self.kind != "word":
            raise self.error(f"a name is wanted, not '{self.next}'")
        return self.take()

    def full_name(self) -> str:
        """A name that may contain dots, also at the beginning."""
        name = "." if self.maybe(".") else ""
        name += self.name()
        while self.maybe("."):
            name += "." + self.name()
        return name

    def whole(self) -> int:
        """An integer."""
        is_negative = self.maybe("-")
        word = self.take()
        try:
            number = int(word, 8) if re.fullmatch(r"0[0-7]+", word) else int(word, 0)
        except ValueError:
            raise self.error(f"a number is wanted, not '{word}'") from None
        return -number if is_negative else number

    def string(self) -> bytes:
        """A string; adjacent strings are concatenated."""
        if self.kind != "string":
            raise self.error(f"a string is wanted, not '{self.next}'")
        found = b""
        while self.kind == "string":
            found += _ESCAPE.sub(_unescaped, self.take()[1:-1].encode())
        return found

    def skip_statement(self) -> None:
        """Skip to the end of the statement: its semicolon or block."""
        depth = 0
        while True:
            word = "" if self.kind == "string" else self.next
            self.take()
            depth += (word in ("{", "[", "(")) - (word in ("}", "]", ")"))
            if depth == 0 and (word in (";", "}")):
                return


def _unescaped(found: re.Match[bytes]) -> bytes:
    hexadecimal, octal, short, long, letter = found.groups()
    if hexadecimal or octal:
        return bytes([int(hexadecimal or octal, 16 if hexadecimal else 8) & 0xFF])
    if short or long:
        return chr(int(short or long, 16)).encode()
    return _LETTERS.get(letter, letter)

"""Java's .properties format, in which server.properties and meta.properties are written.

A logical line is `key=value`; `:` or white space may stand for the `=`. Lines that begin with `#` or `!` are comments.
A backslash at the end of a line continues it; elsewhere it escapes the next character, and `\\t \\n \\r \\f \\uXXXX`
are what they look like.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping
from typing import Final

_BLANKS: Final = " \t\f"
_NAMED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED: Final = {value: f"\\{name}" for name, value in _NAMED.items()} | {
    character: f"\\{character}" for character in "\\=:#!"
}


class PropertiesError(ValueError):
    """The text is not a properties file. The message names the line."""


def decode(data: bytes) -> str:
    """The text of a file. UTF-8, as people write it today; what is not falls back to Java's own Latin-1."""
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse(text: str) -> dict[str, str]:
    """Keys and values; the last of equal keys wins, as in Java. Raises PropertiesError."""
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key_end, value_start = _split(line)
        properties[_unescape(line[:key_end], number)] = _unescape(line[value_start:], number)
    return properties


def render(properties: Mapping[str, str], comments: Iterable[str] = ()) -> str:
    """The text that `parse` reads back; a line a key, in the order given."""
    lines = [f"#{comment}" for comment in comments]
    lines += [f"{_escape(key, every_blank=True)}={_escape(value)}" for key, value in properties.items()]
    return "".join(f"{line}\n" for line in lines)


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Lines with their continuations joined, each with the number of its first; no comments, none empty."""
    pending = ""
    first = 0
    for number, natural in enumerate(_natural_lines(text), start=1):
        line = natural.lstrip(_BLANKS)
        if not pending:
            first = number
            if not line or line[0] in "#!":
                continue
        line = pending + line
        if _ends_in_escape(line):
            pending = line[:-1]
            continue
        pending = ""
        yield first, line
    if pending:
        yield first, pending


def _natural_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _ends_in_escape(line: str) -> bool:
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _split(line: str) -> tuple[int, int]:
    """Where the key ends and where the value starts."""
    end = 0
    while end < len(line) and line[end] not in f"=:{_BLANKS}":
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    start = end
    while start < len(line) and line[start] in _BLANKS:
        start += 1
    if start < len(line) and line[start] in "=:":
        start += 1
    while start < len(line) and line[start] in _BLANKS:
        start += 1
    return end, start


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        code = match.group(1)
        if code[0] != "u":
            return _NAMED.get(code, code)
        if len(code) != 5:
            raise PropertiesError(f"line {line}: \\u must be followed by four hexadecimal digits")
        return chr(int(code[1:], 16))

    joined = re.sub(r"\\(u[0-9A-Fa-f]{4}|.)", replace, text, flags=re.DOTALL)
    # Java writes what lies beyond the basic plane as two escapes.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, every_blank: bool = False) -> str:
    escaped = "".join(_ESCAPED.get(character, character) for character in text)
    if every_blank:
        return escaped.replace(" ", "\\ ")
    return f"\\{escaped}" if escaped.startswith(" ") else escaped

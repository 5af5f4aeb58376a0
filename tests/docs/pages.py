"""The code blocks of README.md and of every page under docs/."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FENCE: Final = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\s*$")
NOT_RUN: Final = re.compile(r"^\*Not run by the tests: (.+)\*$")
"""The line before a block that no test runs, which gives readers the reason."""
NOT_RUN_MAX: Final = 3
EXECUTABLE: Final = frozenset({"python", "sh"})
LANGUAGES: Final = EXECUTABLE | {"text", "properties"}


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `section` is the `##` heading above it, `expected` the `text` block below it."""

    page: str
    section: str
    line: int
    language: str
    text: str
    title: str | None = None
    why_not_run: str | None = None
    expected: str | None = None

    @property
    def is_executable(self) -> bool:
        """Whether it is code or commands."""
        return self.language in EXECUTABLE

    @property
    def place(self) -> str:
        """Page and line, in the form that editors open."""
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """All pages, relative to the repository's root."""
    found = sorted(ROOT.glob("docs/**/*.md"))
    return [str(page.relative_to(ROOT)) for page in (*sorted(ROOT.glob("*.md")), *found)]


def blocks(page: str) -> list[Block]:
    """The blocks of one page, in order."""
    found: list[Block] = []
    section, why_not, begun = "", None, None
    lines: list[str] = []
    for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if begun is not None:
            if line.rstrip() == "```":
                found.append(replace(begun, text="".join(f"{one}\n" for one in lines)))
                begun, why_not = None, None
            else:
                lines.append(line)
        elif fence:
            begun, lines = Block(page, section, number, fence[1], "", fence[2], why_not), []
        elif line.startswith("## "):
            section = line[3:].strip()
        elif line.strip():
            marked = NOT_RUN.match(line)
            why_not = marked[1] if marked else None
    assert begun is None, f"{page}: the block of line {begun and begun.line} has no end"
    return _with_output(found)


def _with_output(found: list[Block]) -> list[Block]:
    """A `text` block is the expected output of the executable block before it."""
    answer: list[Block] = []
    for block in found:
        before = answer[-1] if answer else None
        if block.language == "text" and before and before.language in EXECUTABLE and before.section == block.section:
            answer[-1] = replace(before, expected=block.text)
        else:
            answer.append(block)
    return answer

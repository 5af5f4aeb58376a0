"""Tables as rich prints them where there is no terminal, without rich, whose import takes longer than the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_BETWEEN: Final = "  "


def plain_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str | None, width_max: int
) -> str | None:
    """The lines; None where only rich knows how: text whose width is not its length, and what would be folded."""
    heads = [column.removeprefix("#") for column in columns]
    cells = [heads, *rows]
    if not all(_is_plain(cell) for row in cells for cell in row):
        return None
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    width = sum(widths) + len(_BETWEEN) * (len(widths) - 1)
    if width > width_max or 0 in widths:
        return None
    lines = []
    if title:
        if not _is_plain(title) or len(title) > width:
            return None
        lines.append(title.ljust(width))
    adjust = [str.rjust if column.startswith("#") else str.ljust for column in columns]
    for row in cells:
        lines.append(_BETWEEN.join(fit(cell, size) for fit, cell, size in zip(adjust, row, widths, strict=True)))
    return "\n".join(lines)


def _is_plain(text: str) -> bool:
    """Whether its width is its length, and alignment changes nothing in it."""
    return text.isascii() and text.isprintable() and text == text.strip()

"""Draws docs/assets/rooms.svg: the packages of klamm and the crates of the engine, each above what it uses.

The packages are the layers of the import contract in pyproject.toml, the crates are those of the Cargo workspace. With
`--check` nothing is written, and the exit code is 1 when the picture is out of date.
"""

from __future__ import annotations

import functools
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURE: Final = ROOT / "docs" / "assets" / "rooms.svg"
WIDTH: Final = 480
MARGIN: Final = 10
GAP: Final = 8
BOX_HEIGHT: Final = 28
ROW_HEIGHT: Final = 38
NOT_PART_OF_A_NODE: Final = {"fuzz"}
STYLE: Final = """
text { font-family: system-ui, sans-serif; font-size: 14px; fill: #1f2328; }
.box { text-anchor: middle; }
.title { font-weight: 600; }
.note { font-size: 13px; fill: #59636e; }
.python { fill: #fff8e1; stroke: #b08800; }
.rust { fill: #e8eaf6; stroke: #3f51b5; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .note { fill: #9198a1; }
  .python { fill: #3a3212; stroke: #d4a72c; }
  .rust { fill: #1f2545; stroke: #7986cb; }
}
"""


def packages() -> list[list[str]]:
    """The layers of the packages that exist, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers: list[str] = next(one["layers"] for one in contracts if one["type"] == "layers")
    rows = [[name.strip(" ()") for name in layer.split("|")] for layer in layers]
    folder = ROOT / "python" / "klamm"
    existing = [[name for name in row if (folder / name).is_dir() or name in ("records", "client")] for row in rows]
    return [row for row in existing if row]


def crates() -> list[list[str]]:
    """The layers of the crates, the highest first: a crate is one above the highest that it depends on."""
    uses: dict[str, set[str]] = {}
    for manifest in sorted(ROOT.glob("rust/*/Cargo.toml")):
        found = tomllib.loads(manifest.read_text()).get("dependencies", {})
        uses[manifest.parent.name] = {name.removeprefix("klamm-") for name in found if name.startswith("klamm-")}

    @functools.cache
    def level(name: str) -> int:
        return 1 + max((level(used) for used in uses[name]), default=0)

    names = [name for name in uses if name not in NOT_PART_OF_A_NODE]
    return [[name for name in names if level(name) == at] for at in range(max(map(level, names)), 0, -1)]


def draw() -> str:
    """The picture as an SVG. It takes its colours from the reader's light or dark scheme."""
    parts, top = [], 0
    for title, note, kind, rows in (
        ("python/klamm", "Python decides: imports point downwards", "python", packages()),
        ("rust", "Rust moves bytes: crates depend downwards", "rust", crates()),
    ):
        parts.append(f'<text class="title" x="{MARGIN}" y="{top + 20}">{title}</text>')
        parts.append(f'<text class="note" x="{MARGIN + 9 * len(title) + 12}" y="{top + 20}">{note}</text>')
        top += 32
        for row in rows:
            parts += _row(row, kind, top)
            top += ROW_HEIGHT
        top += 8
    size = f'viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}"'
    about = "<title>The rooms</title><desc>The packages of klamm and the crates of the engine in layers.</desc>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return "\n".join([head, about, f"<style>{STYLE}</style>", *parts, "</svg>\n"])


def _row(names: Sequence[str], kind: str, top: int) -> Iterator[str]:
    width = (WIDTH - 2 * MARGIN - GAP * (len(names) - 1)) / len(names)
    for number, name in enumerate(names):
        left = MARGIN + number * (width + GAP)
        yield f'<rect class="{kind}" x="{left:.1f}" y="{top}" width="{width:.1f}" height="{BOX_HEIGHT}" rx="4"/>'
        yield f'<text class="box" x="{left + width / 2:.1f}" y="{top + 19}">{name}</text>'


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PICTURE.read_text() == draw() else "out of date: run python tools/draw_rooms.py")
    PICTURE.write_text(draw())

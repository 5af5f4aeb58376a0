"""How the page looks: colours for light and dark, and patterns, so that no fill is known by its colour alone."""

from __future__ import annotations

from typing import Final

_RISING: Final = '<path d="M-2 2 L2 -2 M0 8 L8 0 M6 10 L10 6"/>'
_FALLING: Final = '<path d="M-2 6 L2 10 M0 0 L8 8 M6 -2 L10 2"/>'
_DOTS: Final = '<circle cx="2" cy="2" r="1.2"/><circle cx="6" cy="6" r="1.2"/>'
_UPRIGHT: Final = '<path d="M2 0 V8 M6 0 V8"/>'
_KINDS: Final = {
    "active": ("green", ""),
    "expands": ("green", ""),
    "leader": ("blue", ""),
    "moved": ("blue", ""),
    "under-replicated": ("amber", ""),
    "without-a-leader": ("red", ""),
    "regained": ("green", _DOTS),
    "shutting-down": ("amber", _DOTS),
    "lost": ("amber", _FALLING),
    "fenced": ("red", _RISING),
    "shrinks": ("red", _RISING),
    "unclean": ("red", _RISING + _FALLING),
    "unregistered": ("grey", _UPRIGHT),
}
"""Colour, and the marks on it, of each kind of shape in a plot."""


def _fill(kind: str, colour: str, marks: str) -> str:
    return f".k-{kind} {{ fill: {f'url(#p-{kind})' if marks else f'var(--{colour})'}; }}"


def _pattern(kind: str, colour: str, marks: str) -> str:
    ground = f'<rect width="8" height="8" fill="var(--{colour})"/>'
    return (
        f'<pattern id="p-{kind}" width="8" height="8" patternUnits="userSpaceOnUse">{ground}'
        f'<g class="marks">{marks}</g></pattern>'
    )


PATTERNS: Final = (
    '<svg class="patterns" aria-hidden="true"><defs>'
    + "".join(_pattern(kind, *look) for kind, look in _KINDS.items() if look[1])
    + "</defs></svg>"
)
"""The patterns to which the style sheet's fills refer; once in the page."""

STYLE: Final = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --soft: #59636e; --line: #d9dee3; --panel: #f5f7f9;
  --blue: #2f6fb5; --green: #3b8f5a; --amber: #b97a0e; --red: #c0392b; --grey: #7d8792; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e4e8ec; --soft: #9aa5b1; --line: #2e353c;
  --panel: #1c2126; --blue: #6aa5e6; --green: #62b982; --amber: #e0aa45; --red: #ea6f61; --grey: #8b97a4; } }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1060px; margin: 0 auto; padding: 24px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 0 0 4px; }
h3 { font-size: 15px; margin: 14px 0 2px; }
section { margin: 36px 0 0; padding: 20px 0 0; border-top: 1px solid var(--line); }
code { background: var(--panel); padding: 1px 5px; border-radius: 4px; overflow-wrap: anywhere; }
.note, .more, .none, .legend { color: var(--soft); margin: 4px 0 10px; font-size: 14px; max-width: 100ch; }
.bad { border-left: 4px solid var(--red); background: var(--panel); padding: 6px 14px; overflow-wrap: anywhere; }
.tiles { list-style: none; padding: 0; display: grid; gap: 10px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 160px), 1fr)); }
.tiles a { display: block; height: 100%; box-sizing: border-box; background: var(--panel); border-radius: 8px;
  padding: 10px 14px; color: var(--soft); font-size: 13px; text-decoration: none; }
.tiles a:hover, .tiles a:focus-visible { outline: 2px solid var(--blue); }
.tiles b { display: block; font-size: 22px; color: var(--ink); }
.patterns { position: absolute; width: 0; height: 0; }
.marks { stroke: var(--paper); stroke-width: 1.6; fill: none; } .marks circle { fill: var(--paper); stroke: none; }
.plot { width: 100%; min-width: 620px; height: auto; display: block; margin: 6px 0 14px; }
.axis { fill: var(--soft); font-size: 11px; } .grid { stroke: var(--line); }
.wide { overflow-x: auto; } table { border-collapse: collapse; min-width: 100%; font-size: 13px; margin: 0 0 6px; }
th { text-align: left; color: var(--soft); font-weight: 600; vertical-align: bottom; }
th, td { padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
td { vertical-align: top; }
td.text { white-space: normal; overflow-wrap: anywhere; min-width: 12ch; max-width: 44ch; }
th.number, td.number { text-align: right; padding-right: 24px; font-variant-numeric: tabular-nums; }
td.absent { color: var(--soft); }
.legend span { display: inline-block; margin-right: 18px; white-space: nowrap; }
.swatch { width: 14px; height: 14px; margin-right: 6px; vertical-align: -2px; }
""" + "\n".join(_fill(kind, *look) for kind, look in _KINDS.items())

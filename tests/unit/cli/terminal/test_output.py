"""Without a terminal, the output is the same with and without rich."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.text import Text

from klamm.cli.terminal import output
from klamm.cli.terminal.plain_table import plain_table
from klamm.cli.terminal.styled import PIPED_WIDTH, errors, show_table

TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)
HEADS = st.text(st.characters(min_codepoint=65, max_codepoint=90), min_size=1, max_size=8)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]], str | None]:
    count = draw(st.integers(1, 4))
    columns = [draw(st.sampled_from(["", "#"])) + draw(HEADS) for _ in range(count)]
    rows = draw(st.lists(st.lists(TEXT, min_size=count, max_size=count), max_size=4))
    return columns, rows, draw(st.none() | TEXT)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(tables())
@example((["A", "#B"], [["[bold]x", ":smile:"], [" y ", "1"]], "a: [red]"))
def test_a_table(capsys: pytest.CaptureFixture[str], table: tuple[list[str], list[list[str]], str | None]) -> None:
    columns, rows, title = table
    plain = plain_table(columns, rows, title=title, width_max=PIPED_WIDTH)
    show_table(columns, rows, title=title)
    assert plain is None or f"{plain}\n" == capsys.readouterr().out
    capsys.readouterr()


@pytest.mark.parametrize("cell", ["größe", "a\tb", "a\nb", "\x1b[31m", "x" * PIPED_WIDTH])
def test_tables_that_need_wrapping_are_left_to_rich(cell: str) -> None:
    assert plain_table(["A", "B"], [["1", cell]], title=None, width_max=PIPED_WIDTH) is None
    assert plain_table(["A", "B"], [["1", "2"]], title=cell, width_max=PIPED_WIDTH) is None


def test_wide_text_is_left_to_rich(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("NAME", "#COUNT"), [("漢字", 1), ("ab", 22)])
    assert capsys.readouterr().out.splitlines() == ["NAME  COUNT", "漢字      1", "ab       22"]


@pytest.mark.parametrize("text", ["plain", "[bold]no markup[/]", "a\x07b\rc\x0bd", "a\tb\tc", "two\nlines", ":smile:"])
def test_a_line_on_stderr(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.say(text)
    said = capsys.readouterr().err
    errors.print(Text(text), soft_wrap=True)
    assert said == capsys.readouterr().err

"""The README's code for Spark runs as it stands there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.patience import patiently
from tests.spark.producing import numbered, send

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.mark.usefixtures("spark")
def test_the_quick_start(
    bootstrap: str, topic: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(from pyspark.*?)```", README.read_text(), re.DOTALL)
    name = topic()
    send(bootstrap, name, numbered(3))
    # Relative paths would be those of the folder in which the JVM started.
    replaced = {
        "localhost:9092": bootstrap,
        '"subscribe": "greetings"': f'"subscribe": "{name}"',
        '"greetings-state"': repr(str(tmp_path / "state")),
        '("greetings")': f"({str(tmp_path / 'greetings')!r})",
    }
    for text, instead in replaced.items():
        assert text in code
        code = code.replace(text, instead)
    patiently(lambda: exec(compile(code, "README.md", "exec"), {"__name__": "readme"}))
    said = capsys.readouterr().out
    assert "|        0|     2|2023-11-14 22:13:20|" in said
    assert said.splitlines()[-1] == "3"

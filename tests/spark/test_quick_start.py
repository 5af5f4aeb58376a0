"""The README's code for Spark runs as it stands there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from klamm.spark.options.options import parse_common
from tests.integration.test_readme import snippet
from tests.spark.patience import patiently
from tests.spark.producing import Sent, numbered, send
from tests.support.metadata_stories import write_story
from tests.unit.spark.formats.registry_server import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'


@pytest.mark.usefixtures("spark")
def test_the_quick_start(
    bootstrap: str, topic: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = snippet("from pyspark")
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
    names: dict[str, object] = {}

    def run() -> None:
        names.clear()
        names["__name__"] = "readme"
        exec(compile(code, "README.md", "exec"), names)

    patiently(run)
    said = capsys.readouterr().out
    assert "|        0|     2|2023-11-14 22:13:20|" in said
    assert said.splitlines()[-1] == "3"
    # What follows in the text goes on with these names.
    exec(compile(snippet("copies = "), "README.md", "exec"), names)


def test_decoded_values(
    spark: SparkSession, bootstrap: str, topic: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    name = topic()
    code = snippet("orders = {").replace("localhost:9092", bootstrap).replace('"orders"', f'"{name}"')
    with serving() as registry:
        schema_id = registry.register(f"{name}-value", ORDER)
        send(bootstrap, name, [Sent(b"\0" + schema_id.to_bytes(4, "big") + b"\x0e")])
        code = code.replace("http://localhost:8081", registry.url)
        exec(compile(code, "README.md", "exec"), {"__name__": "readme", "spark": spark})
    assert "|  7|" in capsys.readouterr().out


def test_a_secured_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "sesame")
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(snippet("import os"), "README.md", "exec"), names)
    options = parse_common({**names["secured"], "subscribe": "orders"})
    assert 'password="sesame"' in options.client["sasl.jaas.config"]


def test_an_audit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_story(tmp_path / "klamm-data")
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet("from klamm.pipelines.audit"), "README.md", "exec"), {"__name__": "readme"})
    said = capsys.readouterr().out
    assert "broker 3 was fenced" in said
    assert "duration_ms" in said
    assert (tmp_path / "report.html").exists()

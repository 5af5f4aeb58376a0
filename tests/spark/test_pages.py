"""The pages about Spark run from top to bottom, as `tests/docs/test_pages.py` runs the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from klamm.admin.client import Client
from klamm.admin.topics import create
from tests.docs.page_runner import PageRunner, running_page
from tests.docs.pages import blocks
from tests.interop.secured_kafka import PASSWORD, USER, SecuredKafka
from tests.spark.patience import patiently
from tests.spark.producing import Sent, numbered, send
from tests.support.metadata_stories import write_story
from tests.support.node_process import NodeProcess
from tests.unit.spark.formats.registry_server import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'


@contextmanager
def nodes(runner: PageRunner, *ports: int) -> Iterator[list[str]]:
    """Run a node in place of each of these ports of localhost."""
    running: list[NodeProcess] = []
    try:
        for port in ports:
            node = NodeProcess(runner.folder / f"node-{port}", port=runner.port(port))
            node.start()
            running.append(node)
        yield [node.bootstrap for node in running]
    finally:
        for node in running:
            node.stop()


def run_page(runner: PageRunner, page: str, section: str | None = None) -> list[str]:
    """The output of each block of a page, or of one of its sections."""
    printed = []
    for block in blocks(page):
        if block.why_not_run or (section is not None and block.section != section):
            continue
        printed.append(patiently(lambda block=block: runner.run(block, in_process=True)))  # type: ignore[misc]
    assert printed, f"{page} has no section {section}"
    return printed


@pytest.mark.usefixtures("spark")
def test_the_readme(tmp_path: Path) -> None:
    with running_page(tmp_path) as runner, nodes(runner, 9092) as [bootstrap]:
        send(bootstrap, "greetings", numbered(3))
        [printed] = run_page(runner, "README.md", "For notebooks and Spark")
    assert "|        0|     2|2023-11-14 22:13:20|" in printed


@pytest.mark.usefixtures("spark")
def test_the_quick_start(tmp_path: Path) -> None:
    # Relative paths would be relative to the folder in which the JVM started.
    texts = {
        '"greetings-state"': repr(str(tmp_path / "state")),
        '("greetings")': f"({str(tmp_path / 'greetings')!r})",
    }
    with running_page(tmp_path, texts) as runner, nodes(runner, 9092) as [bootstrap]:
        send(bootstrap, "greetings", numbered(3))
        [printed] = run_page(runner, "docs/spark/index.md")
    assert printed.splitlines()[-1] == "3"


def test_formats(spark: SparkSession, tmp_path: Path) -> None:
    with serving() as registry:
        texts = {"http://localhost:8081": registry.url}
        with running_page(tmp_path, texts, {"spark": spark}) as runner, nodes(runner, 9092) as [bootstrap]:
            schema_id = registry.register("orders-value", ORDER)
            send(bootstrap, "orders", [Sent(b"\0" + schema_id.to_bytes(4, "big") + b"\x0e")])
            [printed] = run_page(runner, "docs/spark/formats.md")
    assert "|  7|" in printed


@pytest.mark.usefixtures("spark")
def test_writing(tmp_path: Path) -> None:
    with running_page(tmp_path) as runner, nodes(runner, 9092) as [bootstrap]:
        send(bootstrap, "greetings", numbered(3))
        with Client(bootstrap) as client:
            create(client, ["copies"])
        printed = run_page(runner, "docs/spark/writing.md")
    assert printed[0].strip() == "3"


@pytest.mark.usefixtures("spark")
def test_security(secured_kafka: SecuredKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    send(secured_kafka.bootstrap, "orders", numbered(2))
    texts = {
        "kafka.example:9093": secured_kafka.address("SCRAM"),
        "alice": USER,
        "/etc/kafka/authority.pem": str(secured_kafka.files.authority),
    }
    with running_page(tmp_path, texts) as runner:
        [printed] = run_page(runner, "docs/spark/security.md")
    assert printed.strip() == "2"


@pytest.mark.usefixtures("spark")
def test_archive(tmp_path: Path) -> None:
    texts = {'read_table("backup"': f"read_table({str(tmp_path / 'work' / 'backup')!r}"}
    with running_page(tmp_path, texts) as runner, nodes(runner, 9092, 19092) as [bootstrap, _]:
        send(bootstrap, "orders", numbered(5))
        send(bootstrap, "payments", numbered(4))
        printed = run_page(runner, "docs/pipelines/archive.md")
    assert printed[-1].strip() == "5"


@pytest.mark.usefixtures("spark")
def test_mirror(tmp_path: Path) -> None:
    # Spark resolves relative paths from the folder in which the JVM started.
    texts = {f"--checkpoint {name}": f"--checkpoint {tmp_path / name}" for name in ("orders", "pay", "eu")}
    with running_page(tmp_path, texts) as runner, nodes(runner, 9092, 19092) as [bootstrap, _]:
        send(bootstrap, "orders", numbered(5))
        send(bootstrap, "payments", numbered(4))
        run_page(runner, "docs/pipelines/mirror.md")


@pytest.mark.usefixtures("spark")
def test_an_audit(tmp_path: Path) -> None:
    with running_page(tmp_path) as runner:
        write_story(runner.work / "klamm-data")
        commands, code = run_page(runner, "docs/pipelines/audit.md")
        assert (runner.work / "report.html").exists()
    assert "broker 3 was fenced" in commands
    assert "duration_ms" in code

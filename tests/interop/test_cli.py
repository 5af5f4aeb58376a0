"""The everyday commands on klamm and on Apache Kafka: they work with any broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.cli.main import run
from klamm.formats.storage import random_cluster_id
from tests.interop.apache_kafka import running
from tests.support.foreign import require
from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

Klamm = Callable[..., Any]


@pytest.fixture(scope="module", params=["klamm", "apache-kafka"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("node") / "data"
    if request.param == "klamm":
        with NodeProcess(data) as klamm_node:
            yield klamm_node.bootstrap
    else:
        require("java", "mvn")
        with running(data, random_cluster_id()) as kafka_node:
            yield kafka_node.bootstrap


@pytest.fixture
def klamm(bootstrap: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Klamm:
    """Run a command; returns its standard output, parsed if it is JSON, or its error text when it fails."""
    monkeypatch.setenv("KLAMM_BOOTSTRAP", bootstrap)

    def call(*arguments: str, code: int = 0) -> Any:
        assert run(list(arguments)) == code
        said = capfd.readouterr()
        if code:
            return said.err
        return json.loads(said.out) if "--json" in arguments and arguments[0] != "consume" else said.out

    return call


def test_topics(klamm: Klamm) -> None:
    klamm("topics", "create", "orders", "payments", "-p", "3", "-c", "retention.ms=60000")
    assert "TOPIC_ALREADY_EXISTS" in klamm("topics", "create", "orders", code=1)
    klamm("topics", "create", "orders", "--if-not-exists")
    assert klamm("topics", "create", "dry", "--dry-run", "--json") == {"created": []}
    altered = klamm("topics", "alter", "orders", "--partitions", "5", "--json")
    assert altered == {"name": "orders", "partition_count": 5}

    def partitions() -> list[int]:
        (orders,) = klamm("topics", "describe", "orders", "--json")
        assert orders["configs"] == {"retention.ms": "60000"}
        return [one["partition"] for one in orders["partitions"]]

    def names() -> list[str]:
        return [one["name"] for one in klamm("topics", "list", "--json")]

    # Apache Kafka responds when the change is committed; its broker shows it later.
    wait_until(lambda: partitions() == [0, 1, 2, 3, 4])
    assert names() == ["orders", "payments"]
    assert "orders" in klamm("topics", "list")
    assert klamm("topics", "delete", "orders", "payments", "--yes", "--json") == {"deleted": ["orders", "payments"]}
    wait_until(lambda: names() == [])
    assert "UNKNOWN_TOPIC_OR_PARTITION" in klamm("topics", "describe", "orders", code=1)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume(klamm: Klamm, codec: str) -> None:
    topic = f"greetings-{codec}"
    klamm("produce", topic, "hello", "world", "-k", "key", "-H", "a=b", "-z", codec)
    assert klamm("consume", topic) == "hello\nworld\n"
    assert klamm("consume", topic, "--key", "-n", "1") == "key\thello\n"
    assert klamm("consume", topic, "--from", "-1") == "world\n"
    assert klamm("consume", topic, "--from", "end") == ""
    first = json.loads(klamm("consume", topic, "--json").splitlines()[0])
    assert (first["key"], first["value"], first["headers"], first["offset"]) == ("key", "hello", {"a": "b"}, 0)


def test_a_file_of_many_records_over_partitions(klamm: Klamm, tmp_path: Path) -> None:
    klamm("topics", "create", "many", "-p", "4")
    lines = [f"k{number}:v{number}" for number in range(20_000)]
    (tmp_path / "lines").write_text("\n".join(lines))
    klamm("produce", "many", "--file", str(tmp_path / "lines"), "--key-separator", ":")
    found = klamm("consume", "many", "--key").splitlines()
    assert sorted(found) == sorted(line.replace(":", "\t") for line in lines)


def test_groups(klamm: Klamm) -> None:
    klamm("produce", "work", "one", "two", "three")
    assert klamm("consume", "work", "--group", "team", "-n", "2") == "one\ntwo\n"
    described = klamm("groups", "describe", "team", "--json")
    assert described["offsets"] == [{"topic": "work", "partition": 0, "committed": 2, "log_end": 3, "lag": 1}]
    assert klamm("consume", "work", "--group", "team") == "three\n"
    assert klamm("groups", "reset-offsets", "team", "--to", "-2", "--json")[0]["offset"] == 1
    assert klamm("consume", "work", "--group", "team") == ""
    klamm("groups", "reset-offsets", "team", "--to", "1", "--topic", "work:0", "--execute")
    assert klamm("consume", "work", "--group", "team") == "two\nthree\n"
    assert "team" in [one["name"] for one in klamm("groups", "list", "--json")]
    assert klamm("groups", "delete", "team", "--yes", "--json") == {"deleted": ["team"]}
    assert "there is no such group" in klamm("groups", "describe", "team", code=1)


def test_configs(klamm: Klamm) -> None:
    klamm("topics", "create", "settings")
    klamm("configs", "set", "topic", "settings", "retention.ms=5000", "cleanup.policy=compact,delete")

    def values(*options: str) -> dict[str, str]:
        described = klamm("configs", "describe", "topic", "settings", "--json", *options)
        return {one["key"]: one["value"] for one in described}

    # A broker responds with what it has applied: in Apache Kafka shortly after the controller has acknowledged it.
    given = {"retention.ms": "5000", "cleanup.policy": "compact,delete"}
    wait_until(lambda: given.items() <= values().items())
    assert "Not a number" in klamm("configs", "set", "topic", "settings", "retention.ms=soon", code=1)
    assert klamm("configs", "set", "topic", "settings", "retention.ms=1", "--dry-run", "--json") == {"set": {}}
    unset = klamm("configs", "unset", "topic", "settings", "retention.ms", "cleanup.policy", "--json")
    assert unset == {"unset": ["retention.ms", "cleanup.policy"]}
    wait_until(lambda: values("--all", "--doc")["retention.ms"] == "604800000")

    def threads() -> tuple[str, str]:
        described = klamm("configs", "describe", "broker", "1", "--all", "--json")
        [own] = [one for one in described if one["key"] == "log.cleaner.threads"]
        return own["value"], own["source"]

    klamm("configs", "set", "broker", "*", "log.cleaner.threads=2")
    # Apache Kafka rejects more than twice the broker's current number of threads.
    wait_until(lambda: threads()[0] == "2")
    klamm("configs", "set", "broker", "1", "log.cleaner.threads=3")
    wait_until(lambda: threads() == ("3", "set on the broker"))
    assert "log.cleaner.threads" in klamm("configs", "describe", "broker", "*")
    assert "no configs" in klamm("configs", "describe", "user", "x", code=1)

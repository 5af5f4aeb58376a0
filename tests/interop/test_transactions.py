"""Apache Kafka's Java producer and its tools with klamm's transactions, at each transaction.version."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from klamm import Cluster
from tests.interop.apache_kafka import TOOLS, java, tool
from tests.support.foreign import require
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(600)

COUNT = 60


@pytest.fixture(scope="module", params=[1, 3])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    require("java", "javac", "mvn")
    config = {
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
        "group.initial.rebalance.delay.ms": "0",
    }
    with Cluster(brokers=request.param, config=config) as made:
        yield made


@pytest.fixture(params=[2, 1, 0])
def version(cluster: Cluster, request: pytest.FixtureRequest) -> int:
    level: int = request.param
    at = ("--bootstrap-server", cluster.bootstrap_servers)
    found = re.search(r"transaction\.version.*FinalizedVersionLevel: (\d)", tool("features", *at, "describe").stdout)
    assert found, "described"
    if (current := int(found[1])) != level:
        change = "upgrade" if current < level else "downgrade"
        tool("features", *at, change, "--feature", f"transaction.version={level}")
    return level


def state_of(cluster: Cluster, transactional_id: str) -> dict[str, str]:
    at = ("--bootstrap-server", cluster.bootstrap_servers)
    names, values = tool("transactions", *at, "describe", "--transactional-id", transactional_id).stdout.splitlines()[
        :2
    ]
    return {name.strip(): value.strip() for name, value in zip(names.split("\t"), values.split("\t"), strict=True)}


def test_records_and_offsets_are_copied_exactly_once(cluster: Cluster, version: int) -> None:
    name = f"copy-{version}"
    for topic in (f"{name}-in", f"{name}-out"):
        cluster.create_topic(topic)
    at = ("--bootstrap-server", cluster.bootstrap_servers)
    source = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(COUNT):
        source.produce(f"{name}-in", b"%d" % number)
    assert source.flush(60) == 0
    copier = java(
        TOOLS["transactional-message-copier"],
        *("--broker-list", cluster.bootstrap_servers, "--input-topic", f"{name}-in", "--input-partition", "0"),
        *("--output-topic", f"{name}-out", "--transactional-id", name, "--consumer-group", name),
        *("--max-messages", str(COUNT), "--transaction-size", "10", "--enable-random-aborts"),
    )
    # Its output is complete once its JVM has ended.
    copied = subprocess.run(copier, capture_output=True, text=True, timeout=120, check=False)
    assert copied.returncode == 0, copied.stderr
    assert json.loads(copied.stdout.splitlines()[-1])["totalProcessed"] == COUNT, copied.stdout
    records = cluster.records(f"{name}-out", isolation_level="read_committed")
    assert [record.value for record in records] == [b"%d" % number for number in range(COUNT)]
    wait_until(lambda: state_of(cluster, name)["TransactionState"] == "CompleteCommit", lambda: state_of(cluster, name))
    listed = tool("transactions", *at, "list").stdout
    assert re.search(rf"^{name}\s", listed, re.MULTILINE), listed
    assert set(cluster.committed(name).values()) == {COUNT}

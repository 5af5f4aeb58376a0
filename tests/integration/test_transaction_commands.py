"""`klamm transactions`, `klamm produce --transactional` and `Cluster.transactions()`."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from klamm import Cluster
from klamm.cli.main import run
from tests.integration.test_commands import ended, started
from tests.support.waiting import wait_until

READ_S = 30.0
CONFIG = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}
Klamm = Callable[..., Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config=CONFIG) as made:
        yield made


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


@pytest.fixture
def klamm(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Klamm:
    def call(*words: str, code: int = 0) -> Any:
        """The JSON output of a command, or its error output if it fails."""
        command = [*words, "--bootstrap", cluster.bootstrap_servers]
        found = run([*command, "--json"] if words[0] == "transactions" else command)
        said = capsys.readouterr()
        assert found == code, said.err
        return json.loads(said.out) if said.out else said.err

    return call


def producer_of(cluster: Cluster, transactional_id: str, **settings: object) -> Producer:
    made = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id, "linger.ms": 0}
        | settings
    )
    made.init_transactions(READ_S)
    return made


def begin(cluster: Cluster, topic: str, **settings: object) -> Producer:
    """A producer of the topic's name with an open transaction of one record in partition 0."""
    producer = producer_of(cluster, topic, **settings)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(READ_S)
    return producer


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [record.value for record in cluster.records(topic, isolation_level="read_committed")]


def await_values(cluster: Cluster, topic: str, *expected: bytes) -> None:
    """Wait for the values: markers are written after EndTxn is answered."""
    wait_until(
        lambda: len(values(cluster, topic)) >= len(expected), lambda: f"{len(values(cluster, topic))} can be read"
    )
    assert sorted(values(cluster, topic)) == sorted(expected)  # type: ignore[type-var]


def test_transactions_are_listed_and_described(cluster: Cluster, name: str, klamm: Klamm) -> None:
    cluster.create_topic(name, partitions=2)
    producer = begin(cluster, name)
    [listed] = [one for one in klamm("transactions", "list", "--state", "Ongoing") if one["transactional_id"] == name]
    [described] = klamm("transactions", "describe", name)
    assert described["partitions"] == [{"topic": name, "partition": 0}]
    assert (described["state"], described["timeout_ms"]) == ("Ongoing", 60_000)
    assert {key: described[key] for key in listed} == listed
    [state] = [one for one in cluster.transactions() if one.transactional_id == name]
    assert state == (name, "Ongoing", listed["producer_id"], described["producer_epoch"], ((name, 0),))
    assert klamm("transactions", "list", "--pattern", name[:-1]) == []
    assert klamm("transactions", "list", "--pattern", f"{name[:-1]}.") == [listed]
    assert klamm("transactions", "list", "--producer-id", str(listed["producer_id"])) == [listed]
    assert klamm("transactions", "list", "--longer-than", "1000") == []
    producer.commit_transaction(READ_S)
    wait_until(lambda: klamm("transactions", "describe", name)[0]["state"] == "CompleteCommit", "it is committed")
    assert klamm("transactions", "describe", name)[0]["partitions"] == []


def test_unknown_transactions_and_topics(cluster: Cluster, name: str, klamm: Klamm) -> None:
    cluster.create_topic(name)
    begin(cluster, name).abort_transaction(READ_S)
    assert "there is no such id" in klamm("transactions", "describe", "nobody", code=1)
    assert "unknown states: Running" in klamm("transactions", "list", "--state", "Running", code=1)
    said = klamm("transactions", "abort", f"{name}:0", "--start-offset", "3", "--yes", code=1)
    assert "no transaction begins at offset 3; open are: none" in said
    assert klamm("transactions", "find-hanging", name) == []


def test_a_hanging_transaction_is_listed_and_aborted(cluster: Cluster, name: str, klamm: Klamm) -> None:
    """It is open in a partition, but the coordinator considers it ended."""
    cluster.create_topic(name)
    producer = begin(cluster, name)
    [state] = [one for one in cluster.transactions() if one.transactional_id == name]
    assert klamm("transactions", "find-hanging", name, "--older-than", "0") == [], "its coordinator knows it"
    producer.abort_transaction(READ_S)
    wait_until(lambda: states(cluster)[name] == "CompleteAbort", "the transaction is over")
    leave_hanging(cluster, name, state.producer_id)
    [found] = klamm("transactions", "find-hanging", name, "--older-than", "0")
    assert (found["topic"], found["partition"], found["producer_id"]) == (name, 0, state.producer_id)
    assert values(cluster, name) == []
    written(cluster, name)
    assert values(cluster, name) == [], "readers stop at it"
    aborted = klamm("transactions", "abort", f"{name}:0", "--start-offset", str(found["start_offset"]), "--yes")
    assert aborted == found
    wait_until(lambda: values(cluster, name) == [b"after"], "readers continue")
    assert klamm("transactions", "find-hanging", name, "--older-than", "0") == []


def leave_hanging(cluster: Cluster, topic: str, producer_id: int) -> None:
    """Write a batch of a transaction that no coordinator knows, like a late write of an old release."""
    topic_id = cluster._image().topic_id(topic)
    assert topic_id is not None

    async def append() -> None:
        leader = cluster._reader._leader_of(topic_id, 0)
        leader.engine.append(topic_id, [(0, 1 << 62, None, [(None, b"late")], (producer_id, 30_000))], 0)

    cluster.run(append())
    wait_until(lambda: any(one.value == b"late" for one in cluster.records(topic)), "it is written")


def written(cluster: Cluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, b"after")
    assert producer.flush(READ_S) == 0


def test_a_time_out_follows_the_clusters_clock(name: str) -> None:
    with Cluster(config=CONFIG) as cluster:
        cluster.create_topic(name)
        producer = begin(cluster, name)
        [state] = cluster.transactions()
        assert state.state == "Ongoing"
        cluster.clock.advance(75)
        wait_until(lambda: cluster.transactions()[0].state == "CompleteAbort", "the transaction times out")
        assert cluster.transactions()[0].producer_epoch > state.producer_epoch
        with pytest.raises(KafkaException):
            producer.commit_transaction(READ_S)
        assert values(cluster, name) == []


# klamm produce --transactional


def test_produce_writes_all_records_or_none(cluster: Cluster, name: str, klamm: Klamm, tmp_path: Path) -> None:
    cluster.create_topic(name, partitions=3)
    klamm("produce", name, "a", "b", "--transactional", name)
    await_values(cluster, name, b"a", b"b")
    lines = tmp_path / "lines"
    lines.write_text('{"value": "c"}\n{"value": "d"}\nnonsense\n')
    said = klamm("produce", name, "--json", "--file", str(lines), "--transactional", name, code=1)
    assert "nothing was written: the transaction is aborted" in said
    assert values(cluster, name) == [b"a", b"b"]
    assert states(cluster)[name] != "Ongoing"


def states(cluster: Cluster) -> dict[str, str]:
    return {one.transactional_id: one.state for one in cluster.transactions()}


def test_produce_of_many_batches(cluster: Cluster, name: str, klamm: Klamm, tmp_path: Path) -> None:
    cluster.create_topic(name, partitions=2)
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{number:099}\n" for number in range(20_000)))
    klamm("produce", name, "--file", str(lines), "--transactional", name, "--compression", "lz4")
    await_values(cluster, name, *(b"%099d" % number for number in range(20_000)))


def test_produce_ended_by_ctrl_c_aborts(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name)
    rows = 10_000
    arguments = ("produce", name, "--transactional", name)
    with started(cluster.bootstrap_servers, *arguments) as process:
        assert process.stdin is not None
        process.stdin.write(b"".join(b"%099d\n" % number for number in range(rows)))
        process.stdin.flush()
        wait_until(lambda: len(cluster.records(name)) > 0, "a batch is written")
        process.send_signal(signal.SIGINT)
        code, said = ended(process)
    assert code != 0
    assert b"nothing was written: the transaction is aborted" in said
    assert values(cluster, name) == []


def test_produce_fences_a_killed_producer_and_aborts_its_transaction(cluster: Cluster, name: str, klamm: Klamm) -> None:
    cluster.create_topic(name)
    with started(cluster.bootstrap_servers, "produce", name, "--transactional", name) as process:
        assert process.stdin is not None
        process.stdin.write(b"".join(b"%099d\n" % number for number in range(10_000)))
        process.stdin.flush()
        wait_until(lambda: len(cluster.records(name)) > 0, "a batch is written")
        process.kill()
        process.wait()
    klamm("produce", name, "a", "--transactional", name)
    await_values(cluster, name, b"a")

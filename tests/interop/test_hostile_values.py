"""Requests of transactions and groups with one wrong value: Apache Kafka 4.3.1 and klamm return the same errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.apache_kafka import running
from tests.support.foreign import require
from tests.support.hostile_requests import REQUESTS, SETTINGS, prepared
from tests.support.hostile_values import (
    SILENT,
    TOPIC,
    Broker,
    Known,
    Path,
    Request,
    Variant,
    codes,
    variants,
)
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.timeout(600)

PARTITIONS: Final = ("topics", 0, "partitions")
DIFFERENT: Final[dict[str, tuple[Path, ...]]] = {
    # klamm rejects a batch whose last offset is before its first.
    "a state": (
        (*PARTITIONS, 0, "state_batches", 0, "first_offset"),
        (*PARTITIONS, 0, "state_batches", 0, "last_offset"),
    ),
    # Apache Kafka fails with an exception in its persister.
    "offsets of a share group": (
        ("groups", 0, "group_id"),
        ("groups", 0, *PARTITIONS),
        ("groups", 0, *PARTITIONS, 0),
    ),
    "altered offsets of a share group": ((*PARTITIONS, 0, "partition_index"),),
    # Apache Kafka does not expect that a member of a group is null.
    "fetched offsets": (("groups", 0, "member_id"),),
    # Apache Kafka fails with an exception when it counts a protocol twice, or reads a subscription of nonsense.
    "a classic member joins": (("protocols",),),
    "a classic member joins again": (("protocols",), ("protocols", 0, "metadata")),
    # Apache Kafka never answers if a marker names a partition twice.
    "markers": tuple(
        ("markers", 0, "topics", *rest) for rest in ((), (0, "partition_indexes"), (0, "partition_indexes", 1))
    ),
    # Apache Kafka drops all but the last of what a partition is acknowledged with.
    "acknowledgements": (("topics",), PARTITIONS),
}
"""Values that the two answer differently, and that is meant."""


class Both:
    """Apache Kafka and klamm, each with the topic."""

    def __init__(self, kafka_port: int, node: NodeProcess) -> None:
        self.node = node
        self.brokers = Broker(kafka_port), Broker(node.port)
        self.topic_ids = [prepared(broker) for broker in self.brokers]

    def answers(self, request: Request, name: str, variant: Variant | None) -> list[list[str]]:
        """The codes of both. Raises ValueError, OverflowError or TypeError if no message can contain the value."""
        return [
            codes(broker.answer(request, Known(name, topic_id), variant))
            for broker, topic_id in zip(self.brokers, self.topic_ids, strict=True)
        ]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    require("java", "mvn")
    folder = tmp_path_factory.mktemp("values")
    with (
        running(folder / "kafka", "4L6g3nShT-eMCtK--X86sw", SETTINGS) as kafka,
        NodeProcess(folder / "klamm", overrides=SETTINGS) as node,
    ):
        for bootstrap in (kafka.bootstrap, node.bootstrap):
            admin = AdminClient({"bootstrap.servers": bootstrap})
            admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result()
            producer = Producer({"bootstrap.servers": bootstrap})
            for at in range(20):
                producer.produce(TOPIC, b"record", partition=at % 2)
            assert not producer.flush(60)
        yield Both(kafka.port, node)


@pytest.mark.parametrize("case", REQUESTS)
def test_one_value_is_wrong(both: Both, case: str) -> None:
    request = REQUESTS[case]
    name = case.replace(" ", "-").replace("'", "")
    kafkas, klamms = both.answers(request, f"{name}-good", None)
    assert klamms == kafkas, "without a wrong value"
    different = []
    for at, variant in enumerate(variants(request.fields)):
        if variant.path in DIFFERENT.get(case, ()):
            continue
        try:
            kafkas, klamms = both.answers(request, f"{name}-{at}", variant)
        except (ValueError, OverflowError, TypeError):
            continue  # no message can contain it
        # Apache Kafka never responds to an AddPartitionsToTxn without transactions.
        if kafkas not in (klamms, [SILENT]):
            different.append(f"{variant}: {klamms}, Apache Kafka {kafkas}")
    assert not different, "\n".join(different)

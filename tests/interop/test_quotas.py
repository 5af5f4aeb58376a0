"""Client quotas compared with Apache Kafka 4.3.1: which limit applies to which client, and the exact throttle time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from klamm import records
from klamm.protocol.api_key import ApiKey
from tests.interop.apache_kafka import KafkaNode
from tests.interop.every_version.topics import new_topic
from tests.interop.peers import Peer
from tests.support.foreign import require
from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

Entity = dict[str, str | None]
USER = "ANONYMOUS"
TOPIC = "t"
BYTES = 4_000


class Node:
    """A node of either system."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._admin = Peer(port)
        self.ask(ApiKey.CREATE_TOPICS, 7, topics=[new_topic(TOPIC)], timeout_ms=9_000)
        wait_until(lambda: self.produce("anybody", 1)["error_code"] == "NONE")
        self._markers = 0

    def ask(self, key: int, version: int, **fields: Any) -> dict[str, Any]:
        return self._admin.ask(key, version, fields)

    def set_quotas(self, key: str, *entities: tuple[Entity, float | None]) -> None:
        """Set or remove (None) quotas, and wait until the broker enforces them."""
        self._alter([_entry(entity, key, value) for entity, value in entities])
        self._markers += 1
        marker = f"marker-{self._markers}"
        # Nothing is more specific, and changes are applied in order.
        self._alter([_entry({"user": USER, "client-id": marker}, "producer_byte_rate", 1.0)])
        wait_until(lambda: self.produce(marker, 1)["throttle_time"] > 0)

    def _alter(self, entries: list[dict[str, Any]]) -> None:
        answer = self.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=entries, validate_only=False)
        assert {entry["error_code"] for entry in answer["entries"]} == {"NONE"}

    def alter(self, key: str, entity: Entity, value: float | None) -> None:
        """Set or remove one quota without waiting."""
        self._alter([_entry(entity, key, value)])

    def produce(self, client_id: str, size: int) -> dict[str, Any]:
        """Produce on a new connection, because a throttled one is muted; returns throttle time and error."""
        batch = records.encode([records.NewRecord(b"v" * size)])
        topics = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
        asked = {"acks": 1, "timeout_ms": 9_000, "topic_data": topics}
        answer = Peer(self.port, client_id.encode()).ask(ApiKey.PRODUCE, 9, asked)
        [topic] = answer["responses"]
        [partition] = topic["partition_responses"]
        return {"throttle_time": answer["throttle_time"], "error_code": partition["error_code"]}

    def fetch(self, client_id: str) -> tuple[int, int]:
        """Fetch from the beginning, also on a new connection; returns throttle time and the size of the records."""
        wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
        topics = [{"topic": TOPIC, "partitions": [wanted]}]
        asked = {"replica_id": -1, "max_wait": 0, "max_bytes": 1 << 20, "session_epoch": -1, "topics": topics}
        answer = Peer(self.port, client_id.encode()).ask(ApiKey.FETCH, 11, asked)
        found = [one["records"] or b"" for topic in answer["responses"] for one in topic["partitions"]]
        return answer["throttle_time"], sum(map(len, found))


def _entry(entity: Entity, key: str, value: float | None) -> dict[str, Any]:
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    return {"entity": parts, "ops": [{"key": key, "value": value or 0.0, "remove": value is None}]}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    """Nodes of Kafka and klamm."""
    require("java", "mvn")
    folder = tmp_path_factory.mktemp("nodes")
    kafka = KafkaNode(folder / "kafka")
    kafka.format("4L6g3nShT-eMCtK--X86sw")
    with kafka, NodeProcess(folder / "klamm") as klamm:
        yield Node(kafka.port), Node(klamm.port)


def entities(client_id: str) -> list[Entity]:
    """Entities that match this client, from the most specific to the least."""
    return [
        {"user": USER, "client-id": client_id},
        {"user": USER, "client-id": None},
        {"user": USER},
        {"user": None, "client-id": client_id},
        {"user": None, "client-id": None},
        {"user": None},
        {"client-id": client_id},
        {"client-id": None},
    ]


def test_the_most_specific_limit_applies_and_the_throttle_time_is_kafkas(nodes: tuple[Node, Node]) -> None:
    for first in range(8):
        client_id = f"client-{first}"
        found = []
        for node in nodes:
            limits = [(entity, 100.0 + at if at >= first else None) for at, entity in enumerate(entities(client_id))]
            node.set_quotas("producer_byte_rate", *limits)
            found.append(node.produce(client_id, BYTES))
        theirs, ours = found
        assert theirs["throttle_time"] > 0
        if entities(client_id)[first] != {"user": None}:  # shares its counter with {"user": USER}, at another time
            assert ours == theirs, client_id
        assert nodes[1].produce("client-nobody-named", 1)["error_code"] == "NONE"
    for node in nodes:
        node.set_quotas("producer_byte_rate", ({"client-id": None}, None))
        assert node.produce("client-unlimited", BYTES)["throttle_time"] == 0


def test_a_fetch_beyond_its_quota_is_empty(nodes: tuple[Node, Node]) -> None:
    for node in nodes:
        node.produce("anybody", BYTES)
        node.set_quotas("consumer_byte_rate", ({"client-id": "reader"}, 50.0))
        # Records for a burst of ten seconds, which is free, plus 67 bytes of overhead.
        assert node.fetch("reader") == (1340, 0)
        throttle_ms, size = node.fetch("other-reader")
        assert (throttle_ms, size > BYTES) == (0, True)
        node.set_quotas("consumer_byte_rate", ({"client-id": "reader"}, 1e9))
        assert node.fetch("reader")[1] > BYTES


def offset_deletion(group: str) -> dict[str, Any]:
    return {"group_id": group, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]}


TIMED = [
    (ApiKey.PRODUCE, 9, {"acks": 1, "timeout_ms": 9_000, "topic_data": []}),
    (ApiKey.FETCH, 12, {"replica_id": -1, "max_wait": 0, "session_epoch": -1, "topics": []}),
    (ApiKey.LIST_OFFSETS, 6, {"replica_id": -1, "topics": []}),
    (ApiKey.METADATA, 9, {"topics": []}),
    (ApiKey.OFFSET_COMMIT, 8, {"group_id": "g", "topics": []}),
    (ApiKey.OFFSET_FETCH, 8, {"groups": []}),
    (ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": ["g"]}),
    (ApiKey.API_VERSIONS, 3, {"client_software_name": "klamm", "client_software_version": "1"}),
    (ApiKey.DESCRIBE_CONFIGS, 4, {"resources": []}),
    (ApiKey.LIST_GROUPS, 4, {}),
    (ApiKey.OFFSET_DELETE, 0, offset_deletion("absent")),
    (ApiKey.DESCRIBE_CLUSTER, 1, {}),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": []}),
]
"""One request of each kind of handler: the engine's own, Python's, and those that brokers forward."""


def test_the_time_of_requests_is_limited(nodes: tuple[Node, Node]) -> None:
    """Each request exceeds the tiny quota, so each response has the maximum throttle time: one window."""
    for node in nodes:
        node.set_quotas("request_percentage", ({"client-id": "slow"}, 1e-9))
        for key, version, fields in TIMED:
            answer = Peer(node.port, b"slow").ask(key, version, fields)
            assert answer["throttle_time"] == 1000, key.name
            assert Peer(node.port, b"other").ask(key, version, fields)["throttle_time"] == 0, key.name
        node.set_quotas("request_percentage", ({"client-id": "slow"}, None))
        assert node.produce("slow", 1)["throttle_time"] == 0


def changed(answer: dict[str, Any], results: str) -> tuple[int, set[str]]:
    return answer["throttle_time"], {result["error_code"] for result in answer[results]}


@pytest.mark.parametrize(("versions", "then"), [((5, 2, 4), "NONE"), ((7, 3, 6), "THROTTLING_QUOTA_EXCEEDED")])
def test_partition_changes_beyond_the_quota_by_version(
    nodes: tuple[Node, Node], versions: tuple[int, int, int], then: str
) -> None:
    create, grow, delete = versions
    client_id = f"changes-by-{create}"
    for node in nodes:
        node.set_quotas("controller_mutation_rate", ({"client-id": client_id}, 1.0))

        def ask(key: int, version: int, **fields: Any) -> dict[str, Any]:
            peer = Peer(node.port, client_id.encode())  # noqa: B023 - called before the next
            return peer.ask(key, version, {"timeout_ms": 9_000, **fields})

        # The controller enforces the quota once its own image contains it, which may be shortly after the broker's.
        name = client_id
        first = ask(ApiKey.CREATE_TOPICS, create, topics=[new_topic(name, 60)])
        assert changed(first, "topics")[1] == {"NONE"}
        later = [
            changed(ask(ApiKey.CREATE_TOPICS, create, topics=[new_topic(f"{name}-more", 1)]), "topics"),
            changed(ask(ApiKey.CREATE_PARTITIONS, grow, topics=[{"name": name, "count": 61}]), "results"),
        ]
        named = {"topic_names": [name]} if delete < 6 else {"topics": [{"name": name, "topic_id": None}]}
        later.append(changed(ask(ApiKey.DELETE_TOPICS, delete, **named), "responses"))
        assert [codes for _, codes in later] == [{then}] * 3
        # 60 mutations less the 11 saved ones, and those charged since.
        assert all(30_000 < throttle_ms < 120_000 for throttle_ms, _ in later), later


def test_topics_that_a_broker_creates_count_for_the_client_that_asked(nodes: tuple[Node, Node]) -> None:
    for node in nodes:
        node.set_quotas("controller_mutation_rate", ({"client-id": "asks"}, 0.01))
        node.set_quotas("controller_mutation_rate", ({"client-id": "asks-too"}, 100.0))
        peer = Peer(node.port, b"asks")

        def is_created(peer: Peer, name: str) -> bool:
            fields = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
            [topic] = peer.ask(ApiKey.METADATA, 8, fields)["topics"]
            return bool(topic["error_code"] == "NONE")

        # The first one overdraws the saved tokens.
        wait_until(lambda: is_created(peer, "created-1"))  # noqa: B023 - called before the next
        assert not any(is_created(peer, "created-2") for _ in range(20))
        wait_until(lambda: is_created(Peer(node.port, b"asks-too"), "created-3"))  # noqa: B023 - called before the next
        assert not is_created(peer, "created-2")


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_an_address_that_connects_too_often_is_not_served(nodes: tuple[Node, Node], name: str) -> None:
    entity: Entity = {"ip": name}
    for node in nodes:
        node.alter("connection_creation_rate", entity, 1.0)
        wait_until(lambda: not is_served(node), "a refusal")  # noqa: B023 - called before the next
        node.alter("connection_creation_rate", entity, None)
        wait_until(lambda: is_served(node))  # noqa: B023 - called before the next


def is_served(node: Node) -> bool:
    try:
        with contextlib.closing(Peer(node.port)) as peer:
            return bool(peer.ask(ApiKey.API_VERSIONS, 0, {})["api_keys"])
    except (OSError, AssertionError):
        return False

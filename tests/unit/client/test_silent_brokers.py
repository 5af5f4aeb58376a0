"""A producer with one broker that accepts connections but never responds, like a hanging host."""

from __future__ import annotations

import queue
import socket
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.cli.fake_broker import FakeBroker

from klamm.client import ClientError, KafkaClient
from klamm.protocol.api_key import ApiKey

TOPIC = "orders"
SILENT, SPEAKING = 0, 1
"""The partitions of the silent and the responding broker; a producer that visits them in order starts with SILENT."""
WITHIN_S = 30


class OneOfTwo(FakeBroker):
    """Leads one partition; its metadata have `silent` as the leader of the other."""

    def __init__(self, silent: socket.socket) -> None:
        self._silent = silent
        self.produced: queue.Queue[int] = queue.Queue()
        super().__init__(
            {
                ApiKey.METADATA: (12, 12, self._metadata),
                ApiKey.PRODUCE: (9, 9, self._produce),
                ApiKey.INIT_PRODUCER_ID: (4, 4, self._identity),
            }
        )

    def _metadata(self, request: Any, version: int) -> Mapping[str, object]:
        addresses = [self._silent.getsockname(), self._server.getsockname()]
        partitions = [
            {"error_code": 0, "partition_index": leader, "leader_id": leader, "leader_epoch": 0}
            | dict.fromkeys(("replica_nodes", "isr_nodes", "offline_replicas"), ())
            for leader in (SILENT, SPEAKING)
        ]
        return {
            "brokers": [{"node_id": node, "host": host, "port": port} for node, (host, port) in enumerate(addresses)],
            "controller_id": SPEAKING,
            "topics": [{"error_code": 0, "name": TOPIC, "partitions": partitions}],
        }

    def _produce(self, request: Any, version: int) -> Mapping[str, object]:
        (topic,) = request.topic_data
        for partition in topic.partition_data:
            self.produced.put(partition.index)
        partitions = [{"index": one.index, "error_code": 0, "base_offset": 0} for one in topic.partition_data]
        return {"responses": [{"name": TOPIC, "partition_responses": partitions}]}

    def _identity(self, request: Any, version: int) -> Mapping[str, object]:
        return {"error_code": 0, "producer_id": 7, "producer_epoch": 0}


def produce(client: KafkaClient, *partitions: int) -> None:
    client.produce(TOPIC, pa.array(partitions, pa.int32()), None, pa.array([b"v"] * len(partitions), pa.binary()))


def test_a_silent_broker_does_not_delay_another() -> None:
    # The timeouts for the silent broker exceed the test.
    keys = {"socket.connection.setup.timeout.ms": "600000", "request.timeout.ms": "600000", "linger.ms": "0"}
    keys |= {"delivery.timeout.ms": "1300000"}
    with socket.create_server(("127.0.0.1", 0)) as silent, OneOfTwo(silent) as broker:
        client = KafkaClient(broker.address, keys)
        for _ in range(3):
            produce(client, SILENT, SPEAKING)
            assert broker.produced.get(timeout=WITHIN_S) == SPEAKING
        client.close()


def test_records_are_acknowledged_while_another_broker_is_retried() -> None:
    keys = {"socket.connection.setup.timeout.ms": "50", "request.timeout.ms": "50", "linger.ms": "0"}
    keys |= {"delivery.timeout.ms": "3000", "retry.backoff.ms": "1"}
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        OneOfTwo(silent) as broker,
        KafkaClient(broker.address, keys) as client,
    ):
        produce(client, SILENT, SPEAKING)
        assert broker.produced.get(timeout=WITHIN_S) == SPEAKING
        with pytest.raises(ClientError, match=f"{TOPIC}-{SILENT}") as lost:
            client.flush()
        assert "1 record" in str(lost.value)

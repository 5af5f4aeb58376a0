from __future__ import annotations

import socket
import threading

import pytest
from tests.unit.cli.fake_broker import FakeBroker

from klamm.admin.client import Client, broker_error, retried
from klamm.cli.records.produce import Producer
from klamm.client import BrokerError, ClientError
from klamm.client.connection import Connection, parse_bootstrap
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)


def connected(broker: FakeBroker) -> Connection:
    host, port = parse_bootstrap(broker.address)[0]
    return Connection(host, port)


def test_the_newest_version_that_both_know_is_used() -> None:
    with FakeBroker({16: (0, 9, lambda request, version: {"groups": [], "error_code": 0})}) as broker:
        with connected(broker) as connection:
            assert connection.ask(ListGroupsRequest(), ListGroupsResponse, 4).groups == ()
            assert connection.version(16, 2) == 2
        assert [(key, version) for key, version, _ in broker.requests] == [(18, 3), (16, 4)]


def test_an_api_that_a_broker_lacks_is_reported() -> None:
    with FakeBroker({16: (5, 5, lambda request, version: {})}) as broker, connected(broker) as connection:
        with pytest.raises(ClientError, match="does not support API 16"):
            connection.ask(ListGroupsRequest(), ListGroupsResponse, 4)
        with pytest.raises(ClientError, match="does not support API 42"):
            connection.ask(DeleteGroupsRequest(), DeleteGroupsResponse, 2)


def test_a_refused_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ClientError, match=f"cannot connect to 127.0.0.1:{port}: Connection refused; is a broker"):
        Connection("127.0.0.1", port)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka's protocol"),
        (b"\x00\x00\x00\x02\x00\x00", "does not speak Kafka's protocol"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x63\x00\x00", "answered request 99 instead of 1"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x00", "sent an invalid"),
        (b"\x00\x00\x00\x06\x00", "closed by the broker"),
        (b"", "closed by the broker"),
    ],
)
def test_a_peer_that_is_no_broker(answer: bytes, complaint: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ClientError, match=complaint):
            Connection("127.0.0.1", server.getsockname()[1])
        thread.join()


def test_a_broker_that_does_not_answer_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ClientError, match="did not answer ApiVersions within"):
            Connection("127.0.0.1", port, timeout_s=0.05)


def test_bootstrap_addresses() -> None:
    assert parse_bootstrap("a:1, b ,[::1]:2,[::1]") == [("a", 1), ("b", 9092), ("::1", 2), ("::1", 9092)]
    for text in ("", ",", "a:b", "a:70000", ":1"):
        with pytest.raises(ClientError):
            parse_bootstrap(text)


def test_the_first_address_that_answers_is_used() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"127.0.0.1:{closed.getsockname()[1]}"
    with FakeBroker({}) as broker:
        with Client(f"{dead},{broker.address}") as client:
            assert client.any.address == broker.address
        with pytest.raises(ClientError) as caught:
            Client(f"{dead},{dead}")
    assert len(str(caught.value).splitlines()) == 2


def test_a_starting_broker_is_retried() -> None:
    answers = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]

    def ask() -> str:
        code = answers.pop(0)
        if code != ErrorCode.NONE:
            raise broker_error(code, code.name)
        return "ready"

    assert retried(ask, pause_s=0) == "ready"
    answers.append(ErrorCode.INVALID_GROUP_ID)
    with pytest.raises(BrokerError, match="INVALID_GROUP_ID"):
        retried(ask, pause_s=0)
    answers += [ErrorCode.NOT_COORDINATOR] * 3
    with pytest.raises(BrokerError, match="NOT_COORDINATOR"):
        retried(ask, attempts=3, pause_s=0)


def test_a_moved_leader_is_looked_up_again() -> None:
    answers = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]

    def metadata(request: object, version: int) -> dict[str, object]:
        host, port = parse_bootstrap(broker.address)[0]
        partition = {"partition_index": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
        return {
            "brokers": [{"node_id": 1, "host": host, "port": port}],
            "topics": [{"error_code": 0, "name": "t", "partitions": [partition]}],
        }

    def produce(request: object, version: int) -> dict[str, object]:
        partition = {"index": 0, "error_code": answers.pop(0), "base_offset": 0}
        return {"responses": [{"name": "t", "partition_responses": [partition]}]}

    with FakeBroker({3: (12, 12, metadata), 0: (9, 9, produce)}) as broker, Client(broker.address) as client:
        producer = Producer(client, "t", "none", None)
        producer.add((-1, None, b"x", []))
        producer.flush()
    assert producer.count == 1
    assert answers == []

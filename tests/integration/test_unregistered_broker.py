"""A broker is unregistered or fenced while groups join at its coordinators: the node stays, without an error.

It is the only broker. Meanwhile metadata contains no broker at all, and librdkafka then drops the only broker that it
knows: a client of it may wait for ever, so these joins are requests on plain connections.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from klamm.embedded.cluster import Cluster
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from tests.support.loaded_cluster import CONFIG
from tests.support.raw_connection import RawConnection
from tests.support.waiting import wait_until

ROUNDS: Final = 2
JOINS: Final = 10
"""As many groups join, at least, before a round and after it."""
FLUSH_S: Final = 0.03
"""So groups are being created whenever the broker goes: their records have not been flushed."""
SESSION: Final = {"broker.session.timeout.ms": "1000"}

JOIN: Final[dict[int, tuple[int, dict[str, Any]]]] = {
    ApiKey.JOIN_GROUP: (
        3,  # a member needs no id before it joins
        {
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        1,
        {
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout_ms": 30_000,
            "subscribed_topic_names": ["none"],
            "topic_partitions": [],
        },
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, {"member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["none"]}),
}
"""The request with which the member of a new group joins, for each protocol."""


class Joins:
    """Members of new groups join, one after the other for each protocol, and their connections are opened again."""

    def __init__(self, cluster: Cluster) -> None:
        self._host, port = cluster.brokers[0].address.split(":")
        self._port = int(port)
        self._is_over = threading.Event()
        self.answers: dict[int, Counter[ErrorCode]] = {api_key: Counter() for api_key in JOIN}
        self._threads = [threading.Thread(target=self._join, args=(api_key,), daemon=True) for api_key in JOIN]
        for thread in self._threads:
            thread.start()

    def _join(self, api_key: int) -> None:
        while not self._is_over.is_set():
            # The broker does not run for a moment.
            with contextlib.suppress(OSError, AssertionError), RawConnection(self._host, self._port) as connection:
                connection.ask(ApiKey.FIND_COORDINATOR, {"key": "g"}, 1)  # the first one creates the topic
                self._join_on(connection, api_key)

    def _join_on(self, connection: RawConnection, api_key: int) -> None:
        version, fields = JOIN[api_key]
        for number in itertools.count():
            if self._is_over.is_set():
                return
            group = f"{ApiKey(api_key).name}-{id(connection)}-{number}"
            code = connection.ask(api_key, {"group_id": group, **fields}, version).error_code
            self.answers[api_key][ErrorCode(code)] += 1

    def wait_for(self, code: ErrorCode) -> None:
        """Wait until requests of each protocol have been answered with this code from now on."""
        before = {api_key: answers[code] for api_key, answers in self.answers.items()}
        wait_until(
            lambda: all(self.answers[api_key][code] >= count + JOINS for api_key, count in before.items()),
            lambda: f"{code.name}, but {self.answers}",
            bound_s=60,
        )

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(controllers=1, config=CONFIG | SESSION, flush=True) as cluster:
        cluster.brokers[0].slow_disk(FLUSH_S)
        yield cluster


def unregister(cluster: Cluster, joins: Joins) -> None:
    """Unregister the broker, which registers again with its next start."""
    [broker], [controller] = cluster.brokers, cluster.controllers
    host, port = controller.address.split(":")
    with RawConnection(host, int(port)) as connection:
        answer = connection.ask(ApiKey.UNREGISTER_BROKER, {"broker_id": broker.id})
    assert answer.error_code == ErrorCode.NONE
    joins.wait_for(ErrorCode.NOT_COORDINATOR)
    assert broker.is_running
    broker.kill()
    broker.start()


def fence(cluster: Cluster, joins: Joins) -> None:
    """Pause the broker for longer than its session; it serves the joins that arrived before it learns of that."""
    [broker], [controller] = cluster.brokers, cluster.controllers
    image = controller._member.node.metadata
    broker.pause()

    def is_fenced() -> bool:
        known = image.image.broker(broker.id)
        return known is not None and known.fenced

    wait_until(is_fenced)
    broker.resume()


@pytest.mark.parametrize("take_away", [unregister, fence])
def test_groups_join_while_their_broker_goes(
    cluster: Cluster, take_away: Callable[[Cluster, Joins], None], caplog: pytest.LogCaptureFixture
) -> None:
    joins = Joins(cluster)
    try:
        for _ in range(ROUNDS):
            joins.wait_for(ErrorCode.NONE)
            take_away(cluster, joins)
        joins.wait_for(ErrorCode.NONE)
    finally:
        joins.stop()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]

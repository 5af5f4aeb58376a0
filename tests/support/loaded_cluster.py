"""A cluster under load, for tests that break a part of it while clients work."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.admin import configs
from klamm.admin.client import Client
from klamm.embedded.cluster import Cluster
from klamm.embedded.members import ELECTION_TIMEOUT_MS
from klamm.node.groups import GROUPS_TOPIC
from klamm.node.node import Node
from klamm.protocol import errors
from klamm.protocol.errors import ErrorCode

from .raw_connection import RawConnection
from .waiting import wait_until

NUMBERS = itertools.count()
TOPIC = "load"
PAUSE_S = 1.5
# Each client waits so long after a round, so that the cores are free for what the tests do.
PACE_S = 0.01
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    # A pause is detected by a timer that is a second late.
    "broker.heartbeat.interval.ms": "100",
    # A share group's member has partitions after its second heartbeat.
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    # A snapshot after every few topics, and no log before it: a replica that was away has to fetch one.
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.max.retention.bytes": "1",
    "controller.quorum.fetch.snapshot.max.bytes": "200",
}


class Load:
    """Clients that run until they are stopped.

    A producer waits for acknowledgements, another commits transactions, members of groups join, read, commit and leave,
    and members of share groups do the same.
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.acknowledged = self.commits = self.transactions = self.shared = 0
        self._is_over = threading.Event()
        works = (self._produce, self._transact, self._commit, self._share)
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "linger.ms": 1, "log_level": 0})
        while not self._is_over.is_set():
            producer.produce(TOPIC, b"x" * 100, on_delivery=self._note)
            producer.flush(10)
            self._is_over.wait(PACE_S)

    def _note(self, error: object, message: object) -> None:
        self.acknowledged += error is None

    def _commit(self) -> None:
        while not self._is_over.is_set():
            with contextlib.suppress(KafkaException):
                commit_in_a_new_group(self.bootstrap)
                self.commits += 1

    def _transact(self) -> None:
        while not self._is_over.is_set():
            with contextlib.suppress(KafkaException):
                self._commit_transactions()

    def _commit_transactions(self) -> None:
        """Raises KafkaException; the next producer of the id then ends the transaction."""
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": TOPIC, "linger.ms": 1, "log_level": 0}
        producer = Producer(settings)
        producer.init_transactions(60)
        while not self._is_over.is_set():
            producer.begin_transaction()
            producer.produce(TOPIC, b"x" * 100)
            producer.commit_transaction(60)
            self.transactions += 1
            self._is_over.wait(PACE_S)

    def _share(self) -> None:
        while not self._is_over.is_set():
            with contextlib.suppress(KafkaException):
                accept_in_a_new_share_group(self.bootstrap, self._is_over)
                self.shared += 1

    def assert_goes_on(self) -> None:
        """Wait until each kind of work has progressed."""
        acknowledged, commits, transactions = self.acknowledged, self.commits, self.transactions
        shared = self.shared
        wait_until(lambda: self.transactions > transactions + 1, bound_s=60)
        wait_until(lambda: self.acknowledged > acknowledged + 10, bound_s=60)
        wait_until(lambda: self.commits > commits + 1, bound_s=60)
        wait_until(lambda: self.shared > shared, bound_s=60)

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)


def commit_in_a_new_group(bootstrap: str) -> None:
    """A new group: a member joins, reads a record, commits its offset and leaves. Raises KafkaException."""
    settings = {"bootstrap.servers": bootstrap, "group.id": f"g{next(NUMBERS)}", "log_level": 0}
    settings |= {"auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    consumer = Consumer(settings)
    try:
        consumer.subscribe([TOPIC])
        for _ in range(300):
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                consumer.commit(message, asynchronous=False)
                return
    finally:
        consumer.close()


def accept_in_a_new_share_group(bootstrap: str, is_over: threading.Event) -> None:
    """A new share group: a member receives records, accepts them and leaves. Raises KafkaException."""
    settings = {"bootstrap.servers": bootstrap, "group.id": f"s{next(NUMBERS)}", "log_level": 0}
    consumer = ShareConsumer(settings)
    try:
        consumer.subscribe([TOPIC])
        while not is_over.is_set():
            if any(message.error() is None for message in consumer.poll(0.5)):
                consumer.commit_sync(10.0)
                return
    finally:
        consumer.close()


class LoadedCluster:
    """A cluster under load, with operations that disturb it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        try:
            cluster.create_topic(TOPIC)
        except errors.KafkaError as error:  # the request was repeated after a change of the leader
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        self.load = Load(cluster.bootstrap_servers)
        self.load.assert_goes_on()

    @property
    def nodes(self) -> list[Node]:
        return [member.node for member in self.cluster._members.all]

    def create_topic(self) -> None:
        """Create a topic with an admin client, which retries while the controller changes."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0})

        def is_created() -> bool:
            name = f"t{next(NUMBERS)}"
            try:
                admin.create_topics([NewTopic(name, 5, 1)])[name].result(30)
            except KafkaException:
                return False
            return True

        wait_until(is_created, bound_s=60)

    def resign(self) -> None:
        """The active controller resigns."""

        async def resign() -> None:
            for node in self.nodes:
                if node.metadata.is_active.is_set():
                    node.metadata.raft.resign(node.metadata.raft.epoch)

        self.cluster.run(resign())
        wait_until(self.has_active_controller)

    def come_back(self) -> None:
        """A controller stays away for so long that it needs a snapshot when it returns."""
        away = next(one for one in self.cluster.controllers if not one.is_active)
        away.stop()
        for _ in range(30):
            self.create_topic()
        away.start()

    def come_back_alone(self) -> None:
        """Each controller starts while the others refuse its connections."""
        for controller in self.cluster.controllers:
            controller.kill()
        for controller in self.cluster.controllers:
            controller.start()
            time.sleep(10 * ELECTION_TIMEOUT_MS / 1000)  # it asks for votes in vain meanwhile

    def delete_groups_topic(self) -> None:
        """Delete the topic of group offsets while groups are created; the broker creates it again."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0})

        def is_deleted() -> bool:
            try:
                admin.delete_topics([GROUPS_TOPIC])[GROUPS_TOPIC].result(30)
            except KafkaException as error:  # it is being created, or an injected error closed the connection
                return error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            return True

        wait_until(is_deleted, bound_s=60)

    def cordon_for_a_moment(self) -> None:
        """The log directories of each broker are cordoned, then uncordoned."""
        with Client(self.cluster.bootstrap_servers) as client:
            for broker in self.cluster.brokers:
                for cordoned in ("*", None):
                    configs.alter(client, "broker", str(broker.id), {"cordoned.log.dirs": cordoned})

    def auto_create_topic(self) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0})
        producer.produce(f"auto{next(NUMBERS)}", b"x")
        assert producer.flush(30) == 0

    def pause(self) -> None:
        """The event loop is blocked for so long that the node notices it."""

        async def pause() -> None:
            time.sleep(PAUSE_S)  # noqa: ASYNC251 - the loop shall block

        self.cluster.run(pause())

    def ask_controller(self, api_key: int, values: dict[str, Any] | None = None) -> Any:
        """The active controller's response to a request on its own listener; see `RawConnection.ask`."""
        wait_until(self.has_active_controller)
        active = next(node for node in self.nodes if node.metadata.is_active.is_set())
        with RawConnection(*active.metadata.endpoints[0][1:]) as connection:
            return connection.ask(api_key, values)

    def has_active_controller(self) -> bool:
        """Whether one of the nodes is the active controller."""
        return any(node.metadata.is_active.is_set() for node in self.nodes)

    def assert_serves(self) -> None:
        """Every node is running, and each kind of request is served."""
        assert not any(node.failed.done() for node in self.nodes)
        self.create_topic()
        self.load.assert_goes_on()

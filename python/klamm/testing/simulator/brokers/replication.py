"""The part of a simulated broker's life that replicates: produces, fetches, flushes, and the ISR."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from klamm.controller.operations.replicas import ALTER_PARTITION
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.partition_changes import AlterPartitionRequest, AlterPartitionResponse
from klamm.protocol.wire import codec
from klamm.testing.simulator.brokers.controller import Asked
from klamm.testing.simulator.brokers.fetch_session import Fetch, check_session
from klamm.testing.simulator.brokers.network import Process, Repeated, Reply, Request

if TYPE_CHECKING:
    from klamm._engine.simulation import SimulatedBroker
    from klamm.testing.simulator.brokers.history import Key
    from klamm.testing.simulator.brokers.scene import Scene

ALTER_PARTITION_VERSION: Final = 3
ALTER_PARTITION_PAUSE_US: Final = 50_000
FIRST_FETCH_PAUSE_MS: Final = 20
DELETION_LOOK_US: Final = 20_000
DELETION_LOOKS: Final = 200


class Life(Process, Protocol):
    """The life of a broker that replicates."""

    engine: SimulatedBroker
    is_serving: bool

    @property
    def now_ms(self) -> int:
        """Its clock."""

    @property
    def epoch(self) -> int:
        """The broker epoch."""

    def number(self, key: str) -> int:
        """A number of its configuration."""

    def ask_controller(self, asked: Asked, on_answer: Callable[[Any], None], on_failure: Callable[[], None]) -> None:
        """Send a request to the controller."""


class TransactionalBatch(NamedTuple):
    """A batch, and what its header says of its producer: id, epoch and sequence."""

    content: bytes
    transactional_id: str
    producer: tuple[int, int, int]
    place: tuple[str, int]
    is_adding: bool
    """Its leader adds the partition to the transaction."""


class ShareRequest(NamedTuple):
    """A request of a member of a share group, and how long it may wait."""

    api_key: int
    version: int
    connection_id: int
    body: bytes
    wait_us: int


class Replication:
    """What one life of a broker has in flight."""

    def __init__(self, scene: Scene, broker: Life) -> None:
        self._scene, self._broker, self._engine = scene, broker, broker.engine
        self._fetching: dict[int, object] = {}  # by leader, the request in flight
        self._fetch_pause_ms: dict[int, int] = {}
        self._is_proposing = False
        self._acks: dict[int, Callable[[int], None]] = {}
        self._waiting: dict[int, Reply] = {}  # the fetches that wait here
        self._next_number = 0

    def pump(self) -> None:
        """Take the steps that have become possible."""
        if not self._broker.is_serving:
            return
        has_roles, leaders, woken, flushes, acks = self._engine.take_due(self._broker.now_ms)
        if has_roles:
            self._scene.follow_roles_later(self._broker, self._follow_roles)
        for leader in leaders:
            if leader not in self._fetching:
                self._fetch(leader)
        for number in woken:
            self._look_again(number, is_late=False)
        for flush in flushes:
            self._flush(flush)
        for ticket, code in acks:
            self._acks.pop(ticket)(code)
        if not self._is_proposing:
            self._propose()

    def _flush(self, number: int) -> None:
        self._scene.flush_later(self._broker, lambda: self._engine.end_flush(number, self._broker.now_ms))

    # The ISR

    def _propose(self) -> None:
        body = self._engine.alter_partition_request(self._broker.epoch)
        if body is None:
            return
        self._is_proposing = True
        request = codec.read(AlterPartitionRequest, ALTER_PARTITION_VERSION, body)

        def answered(answer: AlterPartitionResponse) -> None:
            if answer.error_code is not ErrorCode.NONE:
                fail()
                return
            self._engine.on_alter_partition_response(codec.write(answer, ALTER_PARTITION_VERSION))
            self._is_proposing = False

        def fail() -> None:
            self._engine.on_alter_partition_response(None)

            def again() -> None:
                self._is_proposing = False

            self._broker.later(ALTER_PARTITION_PAUSE_US, again)

        self._broker.ask_controller(Asked(ALTER_PARTITION, request, ALTER_PARTITION_VERSION), answered, fail)

    # Following

    def _follow_roles(self) -> None:
        for leader in self._engine.follow_roles(self._broker.now_ms):
            # As in the product, only a request in flight ends the connection, and with it the session.
            if self._fetching.pop(leader, None) is not None:
                self._engine.on_fetch_failed(leader)

    def _fetch(self, leader: int) -> None:
        body = self._engine.fetch_request(leader, self._broker.now_ms)
        if body is None:
            due_ms = self._engine.fetch_due_ms(leader)
            if due_ms is not None and due_ms > self._broker.now_ms:
                self._broker.later(1000 * due_ms - self._scene.now_us, lambda: None)
            return
        fetch = Fetch(body, self._engine.in_session(leader))
        request = object()
        self._fetching[leader] = request

        def answered(answer: Any) -> None:
            if self._fetching.get(leader) is not request:
                return
            self._fetch_pause_ms.pop(leader, None)
            lookups = self._engine.on_fetch_response(leader, answer, self._broker.now_ms)
            self._look_up(leader, request, lookups)

        target = self._scene.leader(leader)
        self._ask_leader(leader, request, lambda reply: target.on_fetch(fetch, reply), answered)

    def _ask_leader(
        self, leader: int, request: object, handle: Callable[[Reply], None], answered: Callable[[Any], None]
    ) -> None:
        timeout_us = self._scene.request_timeout_us
        sent = Request(handle, answered, lambda: self._fail_fetch(leader, request), timeout_us, Repeated.FETCH)
        self._scene.network.call(self._broker, self._scene.leader(leader), sent)

    def _fail_fetch(self, leader: int, request: object) -> None:
        if self._fetching.get(leader) is not request:
            return
        self._engine.on_fetch_failed(leader)
        pause_ms = self._fetch_pause_ms.get(leader, FIRST_FETCH_PAUSE_MS)
        self._fetch_pause_ms[leader] = min(2 * pause_ms, self._broker.number("replica.fetch.backoff.ms"))

        def again() -> None:
            if self._fetching.get(leader) is request:
                del self._fetching[leader]

        self._broker.later(1000 * pause_ms, again)

    def _look_up(self, leader: int, request: object, lookups: list[tuple[Key, int]]) -> None:
        if not lookups:
            del self._fetching[leader]
            return
        (key, leader_epoch), *rest = lookups

        def answered(found: Any) -> None:
            if self._fetching.get(leader) is request:
                self._engine.on_leader_offsets(leader, key, found, self._broker.now_ms)
                self._look_up(leader, request, rest)

        target = self._scene.leader(leader)
        self._ask_leader(leader, request, lambda reply: reply(target.leader_offsets(key, leader_epoch)), answered)

    # Leading

    def leader_offsets(self, key: Key, leader_epoch: int) -> tuple[int, int] | None:
        """A follower asks where this log begins and ends."""
        return self._engine.leader_offsets(key, leader_epoch) if self._broker.is_serving else None

    def on_fetch(self, fetch: Fetch, reply: Reply) -> None:
        """A follower's fetch has arrived. Before this broker serves, nothing listens."""
        if not self._broker.is_serving:
            return
        self._next_number += 1
        number = self._next_number
        answer, in_session = self._engine.answer_fetch(number, fetch.body, self._broker.now_ms)
        if in_session is not None:
            check_session(self._broker.id, fetch, in_session)
        if answer is not None:
            reply(answer)
            return
        self._waiting[number] = reply
        wait_us = 1000 * self._broker.number("replica.fetch.wait.max.ms")
        self._broker.later(wait_us, lambda: self._look_again(number, is_late=True))

    def _look_again(self, number: int, *, is_late: bool) -> None:
        if number in self._waiting:
            answer = self._engine.look_again(number, is_late, self._broker.now_ms)
            if answer is not None:
                self._waiting.pop(number)(answer)

    def on_share(self, request: ShareRequest, reply: Reply) -> None:
        """A ShareFetch or ShareAcknowledge has arrived."""
        if not self._broker.is_serving:
            return
        self._next_number += 1
        number = self._next_number
        api_key, version, connection_id, body, wait_us = request
        answer = self._engine.answer(number, api_key, version, connection_id, body, self._broker.now_ms)
        if answer is not None:
            reply(answer)
            return
        self._waiting[number] = reply
        self._broker.later(wait_us, lambda: self._look_again(number, is_late=True))

    def on_delete_records(self, key: Key, offset: int, reply: Reply) -> None:
        """A client's DeleteRecords has arrived: it is answered when all live replicas have deleted, or not at all."""
        if not self._broker.is_serving:
            return
        code, deleted_to = self._engine.delete_records(key, offset, self._broker.now_ms)
        if code != 0:
            reply(code)
            return
        self._scene.on_deleting(self._broker.id, key, deleted_to)
        lives = self._scene.lives()
        tries_left = DELETION_LOOKS

        def look() -> None:
            nonlocal tries_left
            tries_left -= 1
            code, low_watermark = self._engine.low_watermark(key)
            if code == 0 and low_watermark >= deleted_to:
                self._scene.on_deleted(self._broker.id, key, deleted_to, lives)
            if code != 0 or low_watermark >= deleted_to:
                reply(code)
            elif tries_left:
                self._broker.later(DELETION_LOOK_US, look)

        look()

    def on_transactional_produce(
        self,
        key: Key,
        batch: TransactionalBatch,
        verify: Callable[[TransactionalBatch, Callable[[int], None]], None],
        reply: Callable[[tuple[int, int]], None],
    ) -> None:
        """A transactional batch has arrived. `verify` asks the transaction coordinator for it."""
        if not self._broker.is_serving:
            return
        self._next_number += 1
        ticket = self._next_number
        code, must_ask = self._engine.begin_verification(
            key, batch.producer, batch.is_adding, ticket, self._broker.now_ms
        )

        def verified(code: int) -> None:
            if code != 0:
                reply((code, -1))
            elif self._broker.is_serving:
                self._append(key, batch.content, -1, ticket, reply)

        if code == 0 and must_ask:
            verify(batch, verified)
        else:
            verified(code)

    def append_own(
        self,
        append: Callable[[int], tuple[int, int]],
        done: Callable[[int], None],
        key: Key,
        batch: bytes | None = None,
    ) -> None:
        """A coordinator of this broker appends; `append` gets a ticket, and `done` the result."""
        self._next_number += 1
        ticket = self._next_number
        end_offset = -1

        def acked(code: int) -> None:
            if batch is not None:
                self._scene.on_own_acked(self._broker.id, key, batch, code, end_offset)
            done(code)

        self._acks[ticket] = acked
        code, end_offset = append(ticket)
        if code != 0:
            del self._acks[ticket]
            done(code)

    def on_produce(self, key: Key, batch: bytes, acks: int, reply: Callable[[tuple[int, int]], None]) -> None:
        """A client's batch has arrived."""
        if self._broker.is_serving:
            self._next_number += 1
            self._append(key, batch, acks, self._next_number, reply)

    def _append(self, key: Key, batch: bytes, acks: int, ticket: int, reply: Callable[[tuple[int, int]], None]) -> None:
        end_offset = -1

        def acked(code: int) -> None:
            self._scene.on_acked(self._broker.id, key, batch, code, end_offset)
            reply((code, end_offset))

        self._acks[ticket] = acked
        code, end_offset = self._engine.produce(key, batch, acks, ticket, self._broker.now_ms)
        if code == 0 and acks == -1:
            self._scene.on_produced(self._broker.id, key)
        if code != 0 or acks != -1:
            del self._acks[ticket]
            reply((code, end_offset))

"""A member of a share group in the simulation: it does what clients of KIP-932 do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Protocol

from klamm.coordinator.groups.share.member import JOIN_EPOCH, LEAVE_EPOCH
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import Caller
from klamm.protocol.messages.share_groups import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from klamm.protocol.messages.share_sessions import (
    AcknowledgementBatch,
    AcquireMode,
    ForgottenShareTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    SharePartition,
    ShareTopic,
)
from klamm.protocol.wire import codec
from klamm.testing.simulator.brokers.group_settings import HEARTBEAT_MS, LOCK_MS
from klamm.testing.simulator.brokers.network import Node, Reply, Request
from klamm.testing.simulator.brokers.replication import ShareRequest
from klamm.testing.simulator.brokers.share_deliveries import ACCEPT, REJECT, RELEASE, RENEW
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from klamm.testing.simulator.brokers.broker import Broker
    from klamm.testing.simulator.brokers.history import Key
    from klamm.testing.simulator.brokers.scene import Scene
    from klamm.testing.simulator.brokers.share_deliveries import ShareDeliveries

VERSION: Final = 2
HEARTBEAT_VERSION: Final = 1
OPENING_EPOCH: Final = 0
CLOSING_EPOCH: Final = -1
CALLER: Final = Caller(HEARTBEAT_VERSION, "simulated", "/127.0.0.1")
FENCED: Final = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
TIMEOUT_US: Final = 1_000_000
PAUSE_US: Final = 50_000
WAIT_US_MAX: Final = 500_000
REST_US_MAX: Final = 200_000
"""Between two requests of a session."""
REAL_WAIT_MS: Final = 3_600_000
"""A broker would count it by real time: the simulated wait ends before."""
RECORDS_MAX: Final = 12
ALL: Final = 500
PROCESSING_US_MAX: Final = 50_000
SLOW_CHANCE: Final = 0.1
KINDS: Final = (ACCEPT, ACCEPT, ACCEPT, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, RENEW, None)
"""What a member does with records; None: it never acknowledges them."""
UNNOTICED_CHANCE: Final = 0.3
"""A broker notices late that a client is gone."""
UNNOTICED_US_MAX: Final = 3_000_000


class Group(Node, Protocol):
    """What a member knows of its group."""

    group_id: str
    deliveries: ShareDeliveries
    is_settling: bool
    """From now on every record is accepted."""

    def coordinator(self) -> Broker | None:
        """The coordinator, as some broker knows it (FindCoordinator)."""

    def leader_of(self, key: Key) -> Broker | None:
        """The leader of a partition, as some broker knows it."""

    def new_connection(self) -> int:
        """The id of a connection."""


class Session:
    """A member's share session at one broker, on a connection of its own."""

    def __init__(self, broker: Broker, connection_id: int) -> None:
        self.broker, self.connection_id = broker, connection_id
        self.epoch = OPENING_EPOCH
        self.partitions: frozenset[Key] = frozenset()
        self.is_busy = self.is_over = False
        self.next_us = 0
        self.due: dict[Key, dict[int, tuple[int, int]]] = {}
        """When and how to acknowledge, by offset."""

    def take_due(self, now_us: int, *, renews: bool) -> dict[Key, tuple[AcknowledgementBatch, ...]]:
        """The acknowledgements that are due: those that renew a lock, or the others."""
        found = {}
        for key, offsets in self.due.items():
            due = [
                (offset, kind)
                for offset, (at_us, kind) in sorted(offsets.items())
                if at_us <= now_us and (kind == RENEW) == renews
            ]
            for offset, _ in due:
                del offsets[offset]
            if due:
                found[key] = tuple(_batches(due))
        return found


class ShareMember:
    """One member: a process with a member id of its own."""

    def __init__(self, scene: Scene, group: Group, member_id: str, names: tuple[str, ...]) -> None:
        self._scene, self._group = scene, group
        self.id, self.names = member_id, names
        self.epoch = JOIN_EPOCH
        self.assigned: frozenset[Key] = frozenset()
        self.is_gone = False
        self._sessions: dict[int, Session] = {}
        self._is_beating = False
        self._next_us = 0
        self._silent_until_us = 0

    # Life

    def work(self) -> None:
        """Do what is due."""
        if self.is_gone or self._is_silent:
            return
        if self._scene.now_us >= self._next_us and not self._is_beating:
            self._beat()
        led: dict[int, set[Key]] = {}
        for key in sorted(self.assigned):
            leader = self._group.leader_of(key)
            if leader is not None:
                led.setdefault(leader.id, set()).add(key)
                self._sessions.setdefault(leader.id, Session(leader, self._group.new_connection()))
        for broker_id, session in self._sessions.items():
            if not session.is_busy and self._scene.now_us >= session.next_us:
                self._use(session, frozenset(led.get(broker_id, ())))

    @property
    def _is_silent(self) -> bool:
        return self._scene.now_us < self._silent_until_us

    def silence(self, for_us: int) -> None:
        """The process does not run for a while."""
        self._silent_until_us = self._scene.now_us + for_us

    def _when_it_runs(self, act: Callable[[], None]) -> Callable[[], None]:
        def happen() -> None:
            if self._is_silent:
                self._scene.at(self._silent_until_us - self._scene.now_us, happen)
            elif not self.is_gone:
                act()

        return happen

    def crash(self) -> None:
        """The process ends without a word."""
        self.is_gone = True
        for session in self._sessions.values():
            self._disconnect(session)

    def leave(self) -> None:
        """Close the sessions, and tell the coordinator once."""
        for session in self._sessions.values():
            if session.epoch != OPENING_EPOCH and not session.is_busy:
                self._acknowledge(session, CLOSING_EPOCH, session.take_due(self._scene.now_us, renews=False))
        self._heartbeat(LEAVE_EPOCH, lambda answer: None, lambda: None)
        self._scene.at(TIMEOUT_US, self.crash)
        self.assigned = frozenset()
        self._next_us = self._scene.now_us + TIMEOUT_US

    # Membership

    def _beat(self) -> None:
        self._is_beating = True

        def answered(answer: ShareGroupHeartbeatResponse) -> None:
            self._is_beating = False
            self._on_heartbeat(answer)

        def failed() -> None:
            self._is_beating = False
            self._next_us = self._scene.now_us + PAUSE_US

        self._next_us = self._scene.now_us + 1000 * HEARTBEAT_MS
        self._heartbeat(self.epoch, answered, failed)

    def _heartbeat(self, epoch: int, answered: Callable[[Any], None], failed: Callable[[], None]) -> None:
        names = self.names if epoch != LEAVE_EPOCH else None
        request = ShareGroupHeartbeatRequest(self._group.group_id, self.id, epoch, subscribed_topic_names=names)
        broker = self._group.coordinator()
        if broker is None:
            failed()
            return

        def handle(reply: Reply) -> None:
            if broker.coordinators is not None:
                broker.coordinators.do(lambda coordinators: coordinators.share_heartbeat(CALLER, request), reply)

        def take(answer: Any) -> None:
            self._when_it_runs(lambda: answered(answer))()

        self._scene.network.call(self._group, broker, Request(handle, take, self._when_it_runs(failed), TIMEOUT_US))

    def _on_heartbeat(self, answer: ShareGroupHeartbeatResponse) -> None:
        code = answer.error_code
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            raise InvariantViolatedError(f"a coordinator fails on a heartbeat of {self.id}: {answer.error_message}")
        if code in FENCED:
            self.epoch, self.assigned, self._next_us = JOIN_EPOCH, frozenset(), 0
        elif code is not ErrorCode.NONE:
            self._next_us = self._scene.now_us + PAUSE_US
        else:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                topics = answer.assignment.topic_partitions
                self.assigned = frozenset((topic.topic_id, at) for topic in topics for at in topic.partitions)

    # Sessions

    def _use(self, session: Session, wanted: frozenset[Key]) -> None:
        """Send the next request of a session."""
        now_us, rng = self._scene.now_us, self._scene.rng
        if session.epoch != OPENING_EPOCH:
            renewed = session.take_due(now_us, renews=True)
            if renewed:
                self._acknowledge(session, session.epoch, renewed, is_renew=True)
                return
            due = session.take_due(now_us, renews=False)
            if due and (not wanted or rng.random() < 0.5):
                self._acknowledge(session, session.epoch, due)
                return
        else:
            due = {}
        if wanted or session.partitions:
            self._fetch(session, wanted, due)

    def _fetch(
        self, session: Session, wanted: frozenset[Key], acks: dict[Key, tuple[AcknowledgementBatch, ...]]
    ) -> None:
        rng = self._scene.rng
        request = ShareFetchRequest(
            self._group.group_id,
            self.id,
            session.epoch,
            max_wait_ms=REAL_WAIT_MS,
            min_bytes=1,
            max_records=ALL if self._group.is_settling else rng.randint(1, RECORDS_MAX),
            batch_size=ALL if self._group.is_settling else rng.randint(1, RECORDS_MAX),
            share_acquire_mode=rng.choice(list(AcquireMode)),
            topics=_topics((wanted - session.partitions) | acks.keys(), acks),
            forgotten_topics_data=_forgotten(session.partitions - wanted),
        )
        partitions = session.partitions
        session.partitions = wanted

        def answered(response: ShareFetchResponse) -> None:
            for key, data in _by_key(response.responses):
                for each in data.acquired_records:
                    self._process(session, key, each.first_offset, each.last_offset)

        if not wanted and not acks and not partitions:
            return
        self._send(session, request, ShareFetchResponse, acks, answered)

    def _process(self, session: Session, key: Key, first: int, last: int) -> None:
        rng = self._scene.rng
        for offset in range(first, last + 1):
            kind = ACCEPT if self._group.is_settling else rng.choice(KINDS)
            if kind is None:
                continue
            is_slow = not self._group.is_settling and rng.random() < SLOW_CHANCE
            at_us = self._scene.now_us + rng.randrange(1500 * LOCK_MS if is_slow else PROCESSING_US_MAX)
            session.due.setdefault(key, {})[offset] = at_us, kind

    def _acknowledge(
        self,
        session: Session,
        epoch: int,
        acks: dict[Key, tuple[AcknowledgementBatch, ...]],
        *,
        is_renew: bool = False,
    ) -> None:
        request = ShareAcknowledgeRequest(
            self._group.group_id, self.id, epoch, is_renew_ack=is_renew, topics=_topics(acks.keys(), acks)
        )

        def answered(response: ShareAcknowledgeResponse) -> None:
            for key, batches in acks.items() if is_renew else ():
                for batch in batches:
                    self._process(session, key, batch.first_offset, batch.last_offset)

        self._send(session, request, ShareAcknowledgeResponse, acks, answered)

    def _send(
        self,
        session: Session,
        request: Any,
        response_class: type[Any],
        acks: dict[Key, tuple[AcknowledgementBatch, ...]],
        answered: Callable[[Any], None],
    ) -> None:
        session.is_busy = True
        group, broker, epoch = self._group, session.broker, request.share_session_epoch
        deliveries, member_id, connection_id = group.deliveries, self.id, session.connection_id
        body = codec.write_request(request, VERSION)
        wait_us = 1 + self._scene.rng.randrange(WAIT_US_MAX)

        def handle(reply: Reply) -> None:
            if session.is_over or not broker.is_serving:
                return
            if epoch == OPENING_EPOCH:
                deliveries.on_opened(broker, member_id, connection_id)
            asked = deliveries.on_asked(broker, group.group_id, member_id, dict(acks))

            def on_answer(answer: bytes) -> None:
                response = codec.read_response(response_class, VERSION, answer)
                found = list(_by_key(response.responses))
                codes = {key: _ack_code(data) for key, data in found}
                deliveries.on_answered(group.group_id, asked, codes if not response.error_code else {})
                if response_class is ShareFetchResponse:
                    for key, data in found:
                        deliveries.on_fetched(broker, group.group_id, member_id, key, data)
                if epoch == CLOSING_EPOCH and not response.error_code:
                    deliveries.on_closed(broker, member_id)
                reply(response)

            arrived = ShareRequest(request.API_KEY, VERSION, connection_id, body, wait_us)
            broker.replication.on_share(arrived, on_answer)

        def take(response: Any) -> None:
            if session.is_over:
                return
            session.is_busy = False
            if response.error_code is not ErrorCode.NONE:
                self._restart(session)
            else:
                session.epoch += 1
                rest_us_max = 1 if self._group.is_settling else REST_US_MAX
                session.next_us = self._scene.now_us + self._scene.rng.randrange(rest_us_max)
                answered(response)

        request_sent = Request(
            handle,
            lambda response: self._when_it_runs(lambda: take(response))(),
            self._when_it_runs(lambda: self._restart(session)),
            TIMEOUT_US,
        )
        self._scene.network.call(group, broker, request_sent)

    def _restart(self, session: Session) -> None:
        """The session is lost: the next request opens another one, on another connection."""
        if session.is_over:
            return
        self._disconnect(session)
        if self._sessions.get(session.broker.id) is session:
            del self._sessions[session.broker.id]

    def _disconnect(self, session: Session) -> None:
        """The connection is closed, which its broker notices a while later."""
        session.is_over = True
        rng, broker, connection_id = self._scene.rng, session.broker, session.connection_id
        if not broker.is_up:
            return
        is_unnoticed = rng.random() < UNNOTICED_CHANCE

        def disconnect() -> None:
            self._group.deliveries.on_disconnected(broker, self.id, connection_id)
            broker.engine.disconnect(connection_id, broker.now_ms)

        broker.later(rng.randrange(UNNOTICED_US_MAX if is_unnoticed else PAUSE_US), disconnect)


def _ack_code(data: Any) -> int:
    found: int = data.acknowledge_error_code if hasattr(data, "acknowledge_error_code") else data.error_code
    return found


def _by_key(topics: Iterable[Any]) -> Iterable[tuple[Key, Any]]:
    return (((topic.topic_id, data.partition_index), data) for topic in topics for data in topic.partitions)


def _batches(offsets: Iterable[tuple[int, int]]) -> Iterable[AcknowledgementBatch]:
    """Ranges of consecutive offsets with one type each."""
    for (_, kind), run in groupby(enumerate(offsets), key=lambda entry: (entry[1][0] - entry[0], entry[1][1])):
        found = [offset for _, (offset, _) in run]
        yield AcknowledgementBatch(found[0], found[-1], (kind,))


def _topics(keys: Iterable[Key], acks: dict[Key, tuple[AcknowledgementBatch, ...]]) -> tuple[ShareTopic, ...]:
    return tuple(
        ShareTopic(topic_id, tuple(SharePartition(index, acks.get((topic_id, index), ())) for _, index in of))
        for topic_id, of in groupby(sorted(keys), key=lambda key: key[0])
    )


def _forgotten(keys: Iterable[Key]) -> tuple[ForgottenShareTopic, ...]:
    return tuple(
        ForgottenShareTopic(topic_id, tuple(index for _, index in of))
        for topic_id, of in groupby(sorted(keys), key=lambda key: key[0])
    )

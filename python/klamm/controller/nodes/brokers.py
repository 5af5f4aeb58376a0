"""Brokers: registration, heartbeats, fencing, unregistration (KIP-631, `ClusterControlManager`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from klamm._engine.metadata import BrokerInfo
from klamm.controller.leadership.elections import BrokerEvent, ElectionManager
from klamm.controller.leadership.moves import Moves, in_parts
from klamm.controller.nodes.heartbeats import BrokerControlState, BrokerHeartbeats
from klamm.controller.nodes.registration import (
    BrokerSettings,
    check_broker_features,
    check_identity,
    check_listeners,
    check_log_dirs,
    ranges_of,
    registration_record,
)
from klamm.controller.result import Result
from klamm.controller.speculation import Speculation
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.features import CORDONED_LOG_DIRS_LEVEL, DIRECTORY_ASSIGNMENT_LEVEL, KRAFT_VERSION
from klamm.protocol.generated.metadata_records import (
    BrokerRegistrationChangeRecord,
    UnregisterBrokerRecord,
)
from klamm.protocol.messages.registration import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

_FENCE: Final = 1
_UNFENCE: Final = -1
_ENTER_CONTROLLED_SHUTDOWN: Final = 1
_EVENTS: Final = {
    BrokerControlState.UNFENCED: BrokerEvent.UNFENCED,
    BrokerControlState.CONTROLLED_SHUTDOWN: BrokerEvent.CONTROLLED_SHUTDOWN,
    BrokerControlState.FENCED: BrokerEvent.FENCED,
    BrokerControlState.SHUTDOWN_NOW: BrokerEvent.FENCED,
}
"""The effect of a broker's next state on its partitions."""

FIRST_VERSION_WITH_PREVIOUS_EPOCH: Final = 3
"""From this version on BrokerRegistration has the previous broker epoch, which shows a clean shutdown (KIP-966)."""


class BrokerManager:
    """Decides for brokers. It owns sessions and heartbeat states, which are empty after each activation.

    While an operation of a broker is incomplete (`Result.rest`), no other operation of that broker begins.
    """

    def __init__(self, settings: BrokerSettings, elections: ElectionManager) -> None:
        self._settings: Final = settings
        self._elections: Final = elections
        self.heartbeats = BrokerHeartbeats(settings.session_timeout_ms)
        self._under_way: set[int] = set()  # brokers of which an operation has more to do

    def activate(self, state: Speculation, now_ms: int) -> None:
        """Begin with the brokers of the log; each unfenced broker has a full session timeout for a heartbeat."""
        self.heartbeats = BrokerHeartbeats(self._settings.session_timeout_ms)
        self._under_way.clear()
        for broker in map(state.image.broker, state.image.broker_ids()):
            assert broker is not None, "an id that the image has just listed"
            self.heartbeats.register(broker.id, broker.fenced)
            if not broker.fenced:
                self.heartbeats.contact(broker.id, broker.epoch, now_ms)

    def register(
        self,
        state: Speculation,
        now_ms: int,
        request: BrokerRegistrationRequest,
        *,
        kraft_version: int,
        api_version: int,
    ) -> Result[BrokerRegistrationResponse]:
        """Register an incarnation of a broker, or update its registration.

        Raises INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, BROKER_ID_NOT_REGISTERED, INVALID_REGISTRATION or
        UNSUPPORTED_VERSION, in that order of checks. The registration comes last, so that records before it may go in
        several batches: a broker without a response registers again.
        """
        existing = state.image.broker(request.broker_id)
        check_identity(self._settings, request, existing, has_session=self._has_session(existing, now_ms))
        check_listeners(request.listeners)
        check_log_dirs(state, request)
        check_broker_features(ranges_of(request), {**state.image.features(), KRAFT_VERSION: kraft_version})
        if existing is not None and existing.incarnation_id == request.incarnation_id:
            return self._registered(state, request, existing)
        knows_epoch = existing is not None and api_version >= FIRST_VERSION_WITH_PREVIOUS_EPOCH
        is_clean = knows_epoch and existing is not None and existing.epoch == request.previous_broker_epoch
        event = BrokerEvent.FENCED if is_clean else BrokerEvent.UNCLEAN_SHUTDOWN
        self.heartbeats.remove(request.broker_id)
        moves = Moves(self._elections, state, event, request.broker_id)
        answer = BrokerRegistrationResponse()
        return self._in_parts(moves, (), answer, lambda _: self._registered(state, request, None))

    def _in_parts(
        self, moves: Moves, first: Sequence[bytes], meanwhile: T, finish: Callable[[int], Result[T]]
    ) -> Result[T]:
        """See `in_parts`."""

        def end(count: int) -> Result[T]:
            self._under_way.discard(moves.broker_id)
            return finish(count)

        self._under_way.add(moves.broker_id)
        return in_parts(moves, first, meanwhile, end)

    def _registered(
        self, state: Speculation, request: BrokerRegistrationRequest, amended: BrokerInfo | None
    ) -> Result[BrokerRegistrationResponse]:
        record = registration_record(state, request, amended)
        self.heartbeats.remove(request.broker_id)  # an amended one begins again, too, in a controlled shutdown
        self.heartbeats.register(request.broker_id, record.fenced)
        kind = "a new incarnation" if amended is None else "amended"
        log.info("Broker %d registers with epoch %d (%s)", request.broker_id, record.broker_epoch, kind)
        answer = BrokerRegistrationResponse(broker_epoch=record.broker_epoch)
        return Result(answer, [state.encode(record)], is_atomic=False)

    def _has_session(self, existing: BrokerInfo | None, now_ms: int) -> bool:
        return existing is not None and self.heartbeats.has_valid_session(existing.id, existing.epoch, now_ms)

    def heartbeat(
        self, state: Speculation, now_ms: int, request: BrokerHeartbeatRequest
    ) -> Result[BrokerHeartbeatResponse]:
        """Process a heartbeat. Raises STALE_BROKER_EPOCH."""
        broker_id = request.broker_id
        state.check_broker_epoch(broker_id, request.broker_epoch)
        self.heartbeats.contact(broker_id, request.broker_epoch, now_ms)
        registered_at = state.registration_offset(broker_id)
        leads_any = state.image.broker_partition_counts(broker_id).leaders > 0
        current, following = self.heartbeats.next_state(request, registered_at, leads_any)
        is_fenced = following in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW)
        answer = BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= registered_at,
            is_fenced=is_fenced,
            should_shut_down=following is BrokerControlState.SHUTDOWN_NOW,
        )

        def finish(count: int) -> Result[BrokerHeartbeatResponse]:
            fencing = self._fencing(state, request) if is_fenced and current is not following else []
            self.heartbeats.touch(broker_id, is_fenced, request.current_metadata_offset)
            records = [*fencing, *self._directory_records(state, request)]
            if following is BrokerControlState.CONTROLLED_SHUTDOWN:
                end = state.next_offset + count + len(records) - 1
                self.heartbeats.begin_controlled_shutdown(broker_id, end)
            return Result(answer, records, is_atomic=False)

        if current is following:
            return finish(0)
        log.info("Broker %d goes from %s to %s", broker_id, current.name, following.name)
        first = self._first_of(state, request, following)
        return self._in_parts(Moves(self._elections, state, _EVENTS[following], broker_id), first, answer, finish)

    def _first_of(
        self, state: Speculation, request: BrokerHeartbeatRequest, following: BrokerControlState
    ) -> list[bytes]:
        """The records before the moves of partitions."""
        broker_id, epoch = request.broker_id, request.broker_epoch
        if following is BrokerControlState.UNFENCED:
            return [state.encode(_change(broker_id, epoch, fenced=_UNFENCE))]
        broker = state.image.broker(broker_id)
        assert broker is not None, "its epoch was checked"
        if following is BrokerControlState.CONTROLLED_SHUTDOWN and not broker.in_controlled_shutdown:
            return [state.encode(_change(broker_id, epoch, in_controlled_shutdown=_ENTER_CONTROLLED_SHUTDOWN))]
        return []

    def _fencing(self, state: Speculation, request: BrokerHeartbeatRequest) -> list[bytes]:
        return [state.encode(_change(request.broker_id, request.broker_epoch, fenced=_FENCE))]

    def _directory_records(self, state: Speculation, request: BrokerHeartbeatRequest) -> list[bytes]:
        """The records for directories that went offline (KIP-858) or are cordoned (KIP-1066)."""
        broker = state.image.broker(request.broker_id)
        assert broker is not None, "its epoch was checked"
        level = state.metadata_version
        records: list[bytes] = []
        lost = [each for each in broker.log_dirs if each in request.offline_log_dirs]
        if lost and level >= DIRECTORY_ASSIGNMENT_LEVEL:
            left = [each for each in broker.log_dirs if each not in lost]
            log.warning("Broker %d reports %d log directories offline, %d left", broker.id, len(lost), len(left))
            records += self._elections.for_offline_dirs(state, broker.id, lost)
            records.append(state.encode(_change(broker.id, broker.epoch, log_dirs=left)))
        cordoned = request.cordoned_log_dirs
        if cordoned is not None and level >= CORDONED_LOG_DIRS_LEVEL and _differs(broker.cordoned_log_dirs, cordoned):
            change = _change(broker.id, broker.epoch, cordoned_log_dirs=cordoned)
            records.append(state.encode(change))
        return records

    def assign_directories(
        self, state: Speculation, request: AssignReplicasToDirsRequest
    ) -> Result[AssignReplicasToDirsResponse]:
        """Record the directories of a broker's replicas. Raises UNSUPPORTED_VERSION, STALE_BROKER_EPOCH."""
        if state.metadata_version < DIRECTORY_ASSIGNMENT_LEVEL:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
        state.check_broker_epoch(request.broker_id, request.broker_epoch)
        codes, records = self._elections.at(state).assign_directories(request.broker_id, request.assignments)
        answer = AssignReplicasToDirsResponse(partition_errors=tuple(map(ErrorCode, codes)))
        return Result(answer, records, is_atomic=False)

    def fence_stale(self, state: Speculation, now_ms: int) -> Result[bool]:
        """Fence one broker whose session has expired; the result says whether there may be another."""
        expired = self.heartbeats.pop_expired(now_ms)
        if expired is None:
            return Result(False)
        broker_id, epoch = expired
        broker = state.image.broker(broker_id)
        if broker is None or broker.epoch != epoch:
            return Result(True)
        if broker_id in self._under_way:
            self.heartbeats.contact(broker_id, epoch, now_ms)  # to be looked at again
            return Result(True)
        log.warning("Fencing broker %d: its session has ended", broker_id)

        def finish(_: int) -> Result[bool]:
            self.heartbeats.register(broker_id, is_fenced=True)
            return Result(True, [state.encode(_change(broker_id, epoch, fenced=_FENCE))])

        return self._in_parts(Moves(self._elections, state, BrokerEvent.FENCED, broker_id), (), True, finish)

    def end_session(self, broker_id: int, epoch: int) -> bool:
        """A broker's process has ended; false if it has no session in this epoch."""
        return self.heartbeats.end_session(broker_id, epoch)

    def unregister(self, state: Speculation, request: UnregisterBrokerRequest) -> Result[UnregisterBrokerResponse]:
        """Unregister a broker. Raises BROKER_ID_NOT_REGISTERED."""
        broker = state.image.broker(request.broker_id)
        if broker is None:
            text = f"Broker {request.broker_id} is not registered."
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)
        answer = UnregisterBrokerResponse()

        def finish(_: int) -> Result[UnregisterBrokerResponse]:
            self.heartbeats.remove(broker.id)
            record = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
            return Result(answer, [state.encode(record)])

        return self._in_parts(Moves(self._elections, state, BrokerEvent.UNREGISTERED, broker.id), (), answer, finish)


def _change(broker_id: int, epoch: int, **changed: object) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, **changed)  # type: ignore[arg-type]


def _differs(known: Sequence[bytes] | None, reported: Sequence[bytes]) -> bool:
    return known is None or set(known) != set(reported)

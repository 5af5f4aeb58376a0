"""Brokers: registration, heartbeats, fencing, leaving (facts 5.2)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from klamm._engine import BrokerInfo
from klamm.controller.elections import BrokerEvent, ElectionManager
from klamm.controller.features import check_broker_features
from klamm.controller.heartbeats import BrokerControlState, BrokerHeartbeats
from klamm.controller.registration import (
    BrokerSettings,
    check_identity,
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
from klamm.protocol.registration import (
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

_FENCE: Final = 1
_UNFENCE: Final = -1
_ENTER_CONTROLLED_SHUTDOWN: Final = 1

FIRST_VERSION_WITH_PREVIOUS_EPOCH: Final = 3
"""BrokerRegistration from here on says which epoch the broker had: whether it stopped cleanly (KIP-966)."""


class BrokerManager:
    """Answers for brokers. Sessions and heartbeat states are its own; they begin anew with every activation."""

    def __init__(self, settings: BrokerSettings, elections: ElectionManager) -> None:
        self._settings: Final = settings
        self._elections: Final = elections
        self.heartbeats = BrokerHeartbeats(settings.session_timeout_ms)

    def activate(self, state: Speculation, now_ms: int) -> None:
        """Begin with the brokers of the log; those not fenced get a whole session to be heard."""
        self.heartbeats = BrokerHeartbeats(self._settings.session_timeout_ms)
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
        """Register an incarnation of a broker, or amend what it registered.

        Raises INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, BROKER_ID_NOT_REGISTERED, INVALID_REGISTRATION or
        UNSUPPORTED_VERSION, in that order of checks. The registration comes last, so that records before it may go in
        several batches: a broker that is not answered registers again.
        """
        existing = state.image.broker(request.broker_id)
        check_identity(self._settings, request, existing, has_session=self._has_session(existing, now_ms))
        check_log_dirs(state, request)
        check_broker_features(ranges_of(request), {**state.image.features(), KRAFT_VERSION: kraft_version})
        records: list[bytes] = []
        is_amended = existing is not None and existing.incarnation_id == request.incarnation_id
        if not is_amended:
            knows_epoch = existing is not None and api_version >= FIRST_VERSION_WITH_PREVIOUS_EPOCH
            is_clean = knows_epoch and existing is not None and existing.epoch == request.previous_broker_epoch
            event = BrokerEvent.FENCED if is_clean else BrokerEvent.UNCLEAN_SHUTDOWN
            records += self._elections.for_broker(state, event, request.broker_id)
            self.heartbeats.remove(request.broker_id)
        record = registration_record(state, request, existing if is_amended else None)
        self.heartbeats.register(request.broker_id, record.fenced)
        log.info(
            "Broker %d registers with epoch %d (%s)",
            request.broker_id,
            record.broker_epoch,
            "amended" if is_amended else f"new incarnation, {len(records)} records to clean up",
        )
        answer = BrokerRegistrationResponse(broker_epoch=record.broker_epoch)
        return Result(answer, [*records, state.encode(record)], is_atomic=False)

    def _has_session(self, existing: BrokerInfo | None, now_ms: int) -> bool:
        return existing is not None and self.heartbeats.has_valid_session(existing.id, existing.epoch, now_ms)

    def heartbeat(
        self, state: Speculation, now_ms: int, request: BrokerHeartbeatRequest
    ) -> Result[BrokerHeartbeatResponse]:
        """Take a heartbeat in. Raises STALE_BROKER_EPOCH."""
        broker_id = request.broker_id
        state.check_broker_epoch(broker_id, request.broker_epoch)
        self.heartbeats.contact(broker_id, request.broker_epoch, now_ms)
        registered_at = state.registration_offset(broker_id)
        leads_any = state.image.broker_partition_counts(broker_id).leaders > 0
        current, following = self.heartbeats.next_state(request, registered_at, leads_any)
        records = self._transition(state, request, current, following)
        is_fenced = following in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW)
        self.heartbeats.touch(broker_id, is_fenced, request.current_metadata_offset)
        records += self._directory_records(state, request)
        if following is BrokerControlState.CONTROLLED_SHUTDOWN:
            end = state.next_offset + len(records) - 1
            self.heartbeats.begin_controlled_shutdown(broker_id, end)
        answer = BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= registered_at,
            is_fenced=is_fenced,
            should_shut_down=following is BrokerControlState.SHUTDOWN_NOW,
        )
        return Result(answer, records, is_atomic=False)

    def _transition(
        self,
        state: Speculation,
        request: BrokerHeartbeatRequest,
        current: BrokerControlState,
        following: BrokerControlState,
    ) -> list[bytes]:
        if current is following:
            return []
        log.info("Broker %d goes from %s to %s", request.broker_id, current.name, following.name)
        match following:
            case BrokerControlState.FENCED | BrokerControlState.SHUTDOWN_NOW:
                return self._fence(state, request.broker_id, request.broker_epoch)
            case BrokerControlState.UNFENCED:
                change = _change(request.broker_id, request.broker_epoch, fenced=_UNFENCE)
                records = self._elections.for_broker(state, BrokerEvent.UNFENCED, request.broker_id)
                return [state.encode(change), *records]
            case BrokerControlState.CONTROLLED_SHUTDOWN:
                return self._begin_controlled_shutdown(state, request)

    def _fence(self, state: Speculation, broker_id: int, epoch: int) -> list[bytes]:
        records = self._elections.for_broker(state, BrokerEvent.FENCED, broker_id)
        return [*records, state.encode(_change(broker_id, epoch, fenced=_FENCE))]

    def _begin_controlled_shutdown(self, state: Speculation, request: BrokerHeartbeatRequest) -> list[bytes]:
        broker = state.image.broker(request.broker_id)
        assert broker is not None, "its epoch was checked"
        moves = self._elections.for_broker(state, BrokerEvent.CONTROLLED_SHUTDOWN, request.broker_id)
        if broker.in_controlled_shutdown:
            return list(moves)
        change = _change(broker.id, broker.epoch, in_controlled_shutdown=_ENTER_CONTROLLED_SHUTDOWN)
        return [state.encode(change), *moves]

    def _directory_records(self, state: Speculation, request: BrokerHeartbeatRequest) -> list[bytes]:
        """What follows from directories that went offline (KIP-858) or are cordoned (KIP-1066)."""
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
        """Note in which directories a broker's replicas lie. Raises UNSUPPORTED_VERSION, STALE_BROKER_EPOCH."""
        if state.metadata_version < DIRECTORY_ASSIGNMENT_LEVEL:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
        state.check_broker_epoch(request.broker_id, request.broker_epoch)
        codes, records = self._elections.at(state).assign_directories(request.broker_id, request.assignments)
        answer = AssignReplicasToDirsResponse(partition_errors=tuple(map(ErrorCode, codes)))
        return Result(answer, records, is_atomic=False)

    def fence_stale(self, state: Speculation, now_ms: int) -> Result[bool]:
        """Fence one broker whose session ended; the answer says whether there may be another."""
        expired = self.heartbeats.pop_expired(now_ms)
        if expired is None:
            return Result(False)
        broker_id, epoch = expired
        broker = state.image.broker(broker_id)
        if broker is None or broker.epoch != epoch:
            return Result(True)
        log.warning("Fencing broker %d: nothing heard for %d ms", broker_id, self._settings.session_timeout_ms)
        records = self._fence(state, broker_id, epoch)
        self.heartbeats.register(broker_id, is_fenced=True)
        return Result(True, records, is_atomic=False)

    def unregister(self, state: Speculation, request: UnregisterBrokerRequest) -> Result[UnregisterBrokerResponse]:
        """Forget a broker. Raises BROKER_ID_NOT_REGISTERED."""
        broker = state.image.broker(request.broker_id)
        if broker is None:
            text = f"Broker {request.broker_id} is not registered."
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)
        records = list(self._elections.for_broker(state, BrokerEvent.UNREGISTERED, broker.id))
        records.append(state.encode(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)))
        self.heartbeats.remove(broker.id)
        return Result(UnregisterBrokerResponse(), records, is_atomic=False)


def _change(broker_id: int, epoch: int, **changed: object) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, **changed)  # type: ignore[arg-type]


def _differs(known: Sequence[bytes] | None, reported: Sequence[bytes]) -> bool:
    return known is None or set(known) != set(reported)

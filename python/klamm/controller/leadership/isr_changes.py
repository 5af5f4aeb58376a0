"""AlterPartition: a leader changes the ISR of its partitions (`ReplicationControlManager.alterPartition`)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache

from klamm._engine.controller import Elections
from klamm._engine.metadata import PartitionInfo
from klamm.controller.result import Result
from klamm.controller.speculation import Speculation
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.partition_changes import (
    RECOVERED,
    RECOVERING,
    UNKNOWN_BROKER_EPOCH,
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    ProposedPartition,
)

log = logging.getLogger(__name__)


def alter_partition(
    elections: Elections, state: Speculation, request: AlterPartitionRequest
) -> Result[AlterPartitionResponse]:
    """Change the ISR of partitions. Raises STALE_BROKER_EPOCH; a proposal that is refused changes nothing."""
    if not request.topics:
        return Result(AlterPartitionResponse())
    state.check_broker_epoch(request.broker_id, request.broker_epoch)
    changes = _Changes(elections, state, request.broker_id)
    topics = tuple(
        AlteredTopic(topic.topic_id, tuple(changes.propose(topic.topic_id, each) for each in topic.partitions))
        for topic in request.topics
    )
    return Result(AlterPartitionResponse(topics=topics), changes.records, is_atomic=False)


class _Changes:
    """The changes of a request, each of another partition."""

    def __init__(self, elections: Elections, state: Speculation, broker_id: int) -> None:
        self._elections, self._state, self._broker_id = elections, state, broker_id
        self._broker = cache(state.image.broker)  # a request has few brokers in thousands of ISRs
        self._answered: set[tuple[bytes, int]] = set()
        self.records: list[bytes] = []

    def propose(self, topic_id: bytes, proposed: ProposedPartition) -> AlteredPartition:
        """The answer to a proposal; its record, if it needs one, is in `records`."""
        index = proposed.partition_index
        try:
            after = self._change(topic_id, self._checked(topic_id, proposed), proposed)
        except KafkaError as error:
            log.info("Broker %d may not change partition %s-%d: %s", self._broker_id, topic_id.hex(), index, error)
            return AlteredPartition(index, error.code)
        return AlteredPartition(
            index,
            ErrorCode.NONE,
            after.leader,
            after.leader_epoch,
            tuple(after.isr),
            after.leader_recovery_state,
            after.partition_epoch,
        )

    def _checked(self, topic_id: bytes, proposed: ProposedPartition) -> PartitionInfo:
        """The partition, if it may be changed as proposed. The order of checks is Kafka's."""
        image, index = self._state.image, proposed.partition_index
        if image.topic_name(topic_id) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = image.partition(topic_id, index)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._check_epochs(partition, proposed)
        if (topic_id, index) in self._answered:
            # Unlike Kafka, where both changes start from the same state: ISR and ELR could overlap afterwards.
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "the request names it twice")
        isr = _isr(proposed)
        _check_isr(partition, [each.broker_id for each in isr], proposed.leader_recovery_state)
        self._check_members(isr)
        self._answered.add((topic_id, index))
        return partition

    def _change(self, topic_id: bytes, partition: PartitionInfo, proposed: ProposedPartition) -> PartitionInfo:
        """The partition after the change."""
        isr = [each.broker_id for each in _isr(proposed)]
        record = self._elections.change(
            topic_id, partition.index, isr=isr, leader_recovery_state=proposed.leader_recovery_state
        )
        if record is None:
            return partition
        self.records.append(record)
        after = self._state.image.apply([record]).partition(topic_id, partition.index)
        assert after is not None, "a change removes no partition"
        if after.leader != self._broker_id:
            # The ISR completes a reassignment that removes the leader. As in Kafka, this error does not undo it.
            raise KafkaError(ErrorCode.NEW_LEADER_ELECTED, f"broker {after.leader} leads after the reassignment")
        return after

    def _check_epochs(self, partition: PartitionInfo, proposed: ProposedPartition) -> None:
        leader_epoch, partition_epoch = partition.leader_epoch, partition.partition_epoch
        if proposed.leader_epoch > leader_epoch or proposed.partition_epoch > partition_epoch:
            # The leader knows of more than this controller, which is probably no longer the active one.
            text = f"epochs {proposed.leader_epoch}, {proposed.partition_epoch} above {leader_epoch}, {partition_epoch}"
            raise KafkaError(ErrorCode.NOT_CONTROLLER, text)
        if proposed.leader_epoch < leader_epoch:
            text = f"leader epoch {proposed.leader_epoch} is not {leader_epoch}"
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, text)
        if partition.leader != self._broker_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {partition.leader} leads it")
        if proposed.partition_epoch < partition_epoch:
            text = f"partition epoch {proposed.partition_epoch} is not {partition_epoch}"
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, text)

    def _check_members(self, isr: Sequence[BrokerState]) -> None:
        for member in isr:
            reason = self._ineligible(member)
            if reason is not None:
                raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"broker {member.broker_id} {reason}")

    def _ineligible(self, member: BrokerState) -> str | None:
        broker = self._broker(member.broker_id)
        if broker is None:
            return "is not registered"
        if broker.in_controlled_shutdown:
            return "is shutting down"
        if broker.fenced:
            return "is fenced"
        if member.broker_epoch not in (UNKNOWN_BROKER_EPOCH, broker.epoch):
            return f"has epoch {broker.epoch}, not {member.broker_epoch}"
        return None


def _isr(proposed: ProposedPartition) -> Sequence[BrokerState]:
    return proposed.new_isr_with_epochs or tuple(map(BrokerState, proposed.new_isr))


def _check_isr(partition: PartitionInfo, isr: Sequence[int], recovery_state: int) -> None:
    """Raises INVALID_REQUEST for an ISR or a recovery state that the partition cannot have."""
    wrong = None
    if len(set(isr)) < len(isr) or not set(isr) <= set(partition.replicas):
        wrong = f"ISR {isr} is not a subset of the replicas {partition.replicas}"
    elif partition.leader not in isr:
        wrong = f"ISR {isr} lacks the leader {partition.leader}"
    elif recovery_state not in (RECOVERED, RECOVERING):
        # Kafka's controller fails on it and resigns.
        wrong = f"{recovery_state} is not a recovery state"
    elif recovery_state == RECOVERING and len(isr) > 1:
        wrong = f"ISR {isr} has other members while the leader recovers"
    elif recovery_state == RECOVERING and partition.leader_recovery_state == RECOVERED:
        wrong = "the leader has recovered already"
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)

"""Replica placement: checks a client's assignment, or gets one from the engine (`StripedReplicaPlacer`)."""

from __future__ import annotations

from collections.abc import Sequence

from klamm._engine.controller import PlacementError, Placer
from klamm.controller.speculation import Speculation
from klamm.protocol.errors import ErrorCode, KafkaError

Assignments = Sequence[Sequence[int]]
"""The brokers of each partition; the first is the preferred leader."""


def place(state: Speculation, partition_count: int, replication_factor: int, seed: int) -> Assignments:
    """A place for every replica, spread over racks and brokers. Raises INVALID_REPLICATION_FACTOR."""
    try:
        return Placer(state.image, seed).place(partition_count, replication_factor)
    except PlacementError as error:
        text = f"Unable to replicate the partition {replication_factor} time(s): {error}"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text) from error


def check_assignment(state: Speculation, partition: int, brokers: Sequence[int], factor: int | None) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT for an invalid manual assignment of a new partition.

    `factor` is the number of replicas of the partitions before it; None for the first.
    """
    check_replicas(state, partition, brokers)
    if factor is not None and len(brokers) != factor:
        text = f"Partition {partition} is assigned to {len(brokers)} broker(s), those before it to {factor}."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    known = map(state.image.broker, brokers)
    if not any(broker.is_active for broker in known if broker is not None):
        text = f"Every broker that partition {partition} is assigned to is fenced or in controlled shutdown."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


def check_replicas(state: Speculation, partition: int, brokers: Sequence[int]) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT unless these are different registered brokers, which may be fenced."""
    wrong = _what_is_wrong(state, partition, brokers)
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, wrong)


def _what_is_wrong(state: Speculation, partition: int, brokers: Sequence[int]) -> str | None:
    if not brokers:
        return f"Partition {partition} is assigned to no broker."
    for broker_id in sorted(set(brokers)):
        if state.image.broker(broker_id) is None:
            return f"Partition {partition} is assigned to broker {broker_id}, which is not registered."
        if brokers.count(broker_id) > 1:
            return f"Partition {partition} is assigned to broker {broker_id} more than once."
    return None

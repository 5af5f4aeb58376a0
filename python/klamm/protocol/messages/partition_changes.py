"""AlterPartition (56): a leader proposes the ISR and recovery state of its partitions (KIP-497, KIP-704, KIP-903).

`codec.write_request` and `codec.read_response` are the leader's side, `codec.read` and `codec.write` the controller's.
"""

from __future__ import annotations

from typing import ClassVar, Final

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value

RECOVERED: Final = 0
RECOVERING: Final = 1
"""States of a leader: RECOVERING after an unclean election, until its ISR may grow."""
UNKNOWN_BROKER_EPOCH: Final = -1
"""An epoch that the controller does not check."""


class BrokerState(Value):
    """A member of an ISR: the broker, and its epoch as the leader knows it."""

    broker_id: int
    broker_epoch: int = UNKNOWN_BROKER_EPOCH


class ProposedPartition(Value):
    """The change of a partition: its ISR is `new_isr` in version 2, `new_isr_with_epochs` from version 3 on."""

    partition_index: int
    leader_epoch: int
    partition_epoch: int
    new_isr_with_epochs: tuple[BrokerState, ...] = ()
    new_isr: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED


class ProposedTopic(Value):
    """The changes of a topic's partitions."""

    topic_id: bytes
    partitions: tuple[ProposedPartition, ...]


class AlterPartitionRequest(Value):
    """AlterPartition (56) of a leader."""

    API_KEY: ClassVar[int] = ApiKey.ALTER_PARTITION
    broker_id: int
    broker_epoch: int
    topics: tuple[ProposedTopic, ...]


class AlteredPartition(Value):
    """The state of a partition after the change; after an error only its number and the error count."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    leader_id: int = 0
    leader_epoch: int = 0
    isr: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED
    partition_epoch: int = 0


class AlteredTopic(Value):
    """The partitions of a topic."""

    topic_id: bytes
    partitions: tuple[AlteredPartition, ...]


class AlterPartitionResponse(Value):
    """AlterPartition (56): an error for the whole, or the outcome for each partition."""

    API_KEY: ClassVar[int] = ApiKey.ALTER_PARTITION
    error_code: ErrorCode = ErrorCode.NONE
    topics: tuple[AlteredTopic, ...] = ()
    throttle_time_ms: int = 0

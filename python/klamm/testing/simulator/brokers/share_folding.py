"""The state of a live share coordinator is what its log says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from klamm.coordinator.share.shard import ShareShard
from klamm.node.share_states import SHARE_STATES_TOPIC
from klamm.testing.simulator.brokers.folding import folded_shards
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from klamm.coordinator.share.partition_state import ShareState
    from klamm.protocol.messages.share_state import SharePartitionKey
    from klamm.testing.simulator.brokers.broker import Broker


def check_share_state(broker: Broker) -> None:
    """Compare the shards of a share coordinator that have no append in flight. Raises InvariantViolatedError."""
    coordinators = broker.coordinators
    if coordinators is None:
        return
    states = coordinators.share_states

    def new_shard() -> ShareShard:
        return ShareShard(states.config, lambda topic_id, partition: True, lambda: True)

    for hosted, folded in folded_shards(broker, states.runtime, SHARE_STATES_TOPIC, new_shard):
        kept, expected = _state(hosted.shard), _state(folded)
        if kept != expected:
            where = f"partition {hosted.partition} of {SHARE_STATES_TOPIC} at broker {broker.id}"
            raise InvariantViolatedError(f"{where} has {kept}, and its log {expected}")


def _state(shard: ShareShard) -> dict[SharePartitionKey, ShareState]:
    """Without the number of updates, of which pruning has removed the first ones."""
    return {key: replace(state, update_count=0) for key, state in sorted(shard.states.items())}

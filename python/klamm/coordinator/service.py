"""Which partition's shard answers for a group, and what is answered when it is not here (facts 11.1).

No I/O: the driver tells it which partitions are led here and gives it their records.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from klamm.coordinator.config import GroupConfig
from klamm.coordinator.counts import Counts
from klamm.coordinator.effects import Ticket
from klamm.coordinator.shard import Shard
from klamm.protocol.errors import ErrorCode, KafkaError

Refuse = Callable[[ErrorCode], Any]
"""Makes the answer to a request that ends with an error."""


class LoadState(enum.Enum):
    """How far a partition that is led here is."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class Residence:
    """A partition that is led here, in the leader epoch of its election."""

    partition: int
    leader_epoch: int
    shard: Shard
    state: LoadState = LoadState.LOADING
    is_touched: bool = False
    """Whether the driver has yet to look for what the shard wants appended."""
    asked: dict[Ticket, Refuse] = field(default_factory=dict)
    """The requests that the shard has not answered, each with what makes a refusal of it."""
    failures: int = 0
    """How often in a row the shard failed or could not be loaded."""
    load_error: str = ""
    """Why the last attempt to load it failed, so that each reason is logged once."""
    active_since_ms: int = 0
    deleted_topics: list[tuple[str, bytes]] = field(default_factory=list)
    """Topics, name and id, that were deleted while it was loaded."""


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, int32 with wrap-around."""
    raw = text.encode("utf-16-be", errors="surrogatepass")
    value = 0
    for high, low in zip(raw[::2], raw[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(maxsize=10_000)
def partition_of(key: str, partition_count: int) -> int:
    """The partition of an internal topic that a group or a transactional id belongs to."""
    value = java_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partition_count


class GroupRegistry:
    """The partitions of `__consumer_offsets` that are led here."""

    def __init__(self, config: GroupConfig, partition_count: int, draw_uuid: Callable[[], str]) -> None:
        self.config = config
        self.partition_count = partition_count
        self.counts = Counts()
        self._draw_uuid = draw_uuid
        self._residences: dict[int, Residence] = {}

    def partition_for(self, group_id: str) -> int:
        """The partition that a group belongs to."""
        return partition_of(group_id, self.partition_count)

    def arrive(self, partition: int, leader_epoch: int) -> Residence:
        """The partition is led here from now on; it is to be loaded."""
        residence = Residence(partition, leader_epoch, self._new_shard())
        self._residences[partition] = residence
        return residence

    def empty(self, residence: Residence) -> None:
        """The partition is to be loaded from the start again."""
        residence.shard = self._new_shard()

    def _new_shard(self) -> Shard:
        return Shard(self.config, self._draw_uuid, self.counts)

    def depart(self, partition: int) -> Residence | None:
        """The partition is no longer led here."""
        return self._residences.pop(partition, None)

    def get(self, partition: int) -> Residence | None:
        """The partition, if it is led here."""
        return self._residences.get(partition)

    def residences(self) -> list[Residence]:
        """All that are led here, in whatever state."""
        return list(self._residences.values())

    def active(self, partition: int) -> Residence:
        """The partition, ready to serve. Raises COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        residence = self._residences.get(partition)
        if residence is None or residence.state is LoadState.FAILED:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if residence.state is LoadState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return residence

    def active_for(self, group_id: str) -> Residence:
        """The same of the partition that a group belongs to."""
        return self.active(partition_of(group_id, self.partition_count))

    def all_active(self) -> list[Residence]:
        """Every partition that serves. Raises COORDINATOR_LOAD_IN_PROGRESS while one of them loads."""
        residences = [one for one in self._residences.values() if one.state is not LoadState.FAILED]
        if any(one.state is LoadState.LOADING for one in residences):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return residences

"""Leader elections, replica placement and the records of new partitions, computed on an image."""

from collections.abc import Sequence
from typing import Literal, Self, final

from klamm._engine.metadata import Image

BrokerEvent = Literal[
    "fenced", "unfenced", "controlled_shutdown", "unregistered", "unclean_shutdown"
]  # in the stub only

ElectionType = Literal["preferred", "online", "unclean"]  # in the stub only

@final
class Elections:
    """Leader elections on an image (KIP-966; Kafka's `PartitionChangeBuilder`). Returns encoded PartitionChangeRecords.

    The keywords are the controller's own id and static configuration. The values in the image take precedence: the
    topic's, the node's dynamic one, and the cluster's dynamic default.
    """

    def __new__(
        cls, image: Image, *, node_id: int, min_insync_replicas: int, unclean_leader_election_enable: bool
    ) -> Self: ...
    def for_broker(self, event: BrokerEvent, broker_id: int) -> list[bytes]:
        """The changes of all partitions that follow from an event of a broker, without the broker's own record.

        For a broker that registers again, the event is "fenced" after a clean shutdown, and otherwise
        "unclean_shutdown".
        """
    def part_for_broker(
        self, event: BrokerEvent, broker_id: int, place: tuple[int, int], *, records_max: int, partitions_max: int
    ) -> tuple[list[bytes], tuple[int, int] | None]:
        """A part of the same changes, beginning at `place` (at first (0, 0)); and the next place, None after the last.

        A part ends after `records_max` records, or after the topic with which `partitions_max` partitions are examined.
        The next part may use a later image, because a topic keeps its place.
        """
    def for_offline_dirs(self, broker_id: int, directories: Sequence[bytes]) -> list[bytes]:
        """The changes that follow when directories of a broker go offline."""
    def assign_directories(
        self, broker_id: int, assignments: Sequence[tuple[bytes, bytes, int]]
    ) -> tuple[list[int], list[bytes]]:
        """For each (directory id, topic id, partition) an error code, and the records (KIP-858)."""
    def preferred_leaders(self, limit: int) -> list[bytes]:
        """At most `limit` records that elect preferred leaders."""
    def unclean_leaders(self, limit: int) -> list[bytes]:
        """At most `limit` records of unclean elections for partitions without a leader, where the topic allows them."""
    def elect_leaders(
        self, election: Literal["preferred", "unclean"], partitions: Sequence[tuple[bytes, int]] | None = None
    ) -> list[tuple[bytes, int, int, bytes | None]]:
        """ElectLeaders: topic id, partition, error code and record, for these or for all partitions in need."""
    def change(
        self,
        topic_id: bytes,
        index: int,
        *,
        isr: Sequence[int] | None = None,
        replicas: Sequence[int] | None = None,
        removing_replicas: Sequence[int] | None = None,
        adding_replicas: Sequence[int] | None = None,
        leader_recovery_state: int | None = None,
        directory: tuple[int, bytes] | None = None,
        election: ElectionType | None = None,
    ) -> bytes | None:
        """The record of a change to one partition; None if nothing changes or the partition does not exist.

        Completes a reassignment if possible. `directory` is a broker id and the directory of its replica. Without
        `election`, the election is "online", or "unclean" if the topic allows it. Kafka passes "online" when it starts
        a reassignment or assigns directories.
        """

class PlacementError(ValueError):
    """Replicas cannot be placed, or a partition would have no replica on an active broker."""

@final
class Placer:
    """Kafka's `StripedReplicaPlacer`, rack-aware, for the usable brokers of an image. Deterministic for a seed."""

    def __new__(cls, image: Image, seed: int) -> Self: ...
    def place(self, partition_count: int, replication_factor: int) -> list[list[int]]:
        """The replicas of each partition, the preferred leader first. Raises PlacementError."""

def topic_records(
    image: Image,
    name: str,
    topic_id: bytes,
    config: Sequence[tuple[str, str]],
    assignments: Sequence[Sequence[int]],
) -> list[bytes]:
    """TopicRecord, ConfigRecords and PartitionRecords of a new topic. Raises PlacementError."""

def partition_records(
    image: Image, topic_id: bytes, first_index: int, assignments: Sequence[Sequence[int]]
) -> list[bytes]:
    """PartitionRecords from `first_index` on; the ISR is the replicas on active brokers. Raises PlacementError."""

"""The group coordinator's work that the engine does: OffsetCommit, assignments, metadata hashes, topic patterns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self, TypeVar, final

from klamm._engine.metadata import Image

_T = TypeVar("_T")

@final
class CommitRequest:
    """An OffsetCommit request (API 8), with its topics and partitions looked up in an image."""

    def __new__(
        cls,
        group_id: str,
        topics: Sequence[tuple[str, bytes, Sequence[tuple[int, int, int, str | None]]]],
        *,
        version: int = 9,
        generation_id_or_member_epoch: int = ...,
        member_id: str = "",
        group_instance_id: str | None = None,
        retention_time_ms: int = ...,
    ) -> Self:
        """`topics`: name, id, and (partition, offset, leader epoch, metadata) for each offset to commit.

        The numeric defaults are -1.
        """
    @staticmethod
    def read(version: int, body: bytes, image: Image) -> CommitRequest:
        """Decode a request body. Raises ValueError if it is malformed."""
    @property
    def version(self) -> int: ...
    @property
    def group_id(self) -> str: ...
    @property
    def generation_id_or_member_epoch(self) -> int: ...
    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...
    @property
    def retention_time_ms(self) -> int:
        """-1 means as configured."""
    @property
    def offset_count(self) -> int:
        """The number of offsets for existing partitions."""
    def changes(
        self,
        now_ms: int,
        expire_ms: int,
        metadata_max: int,
        record_offset: int,
        make: Callable[[tuple[int, int, str, int, int, bytes, int]], _T],
    ) -> tuple[list[tuple[bytes, bytes | None]], int, list[tuple[str, int, _T]], list[int]]:
        """The records for `__consumer_offsets`, their size in bytes, the changes, and an error code for each offset.

        Metadata of more than `metadata_max` UTF-16 units is rejected. A change is topic, partition, and the result of
        `make` for offset, leader epoch, metadata, commit time, expiry (-1: none), topic id and record number, counted
        from `record_offset`. Raises OverflowError if a string is too long for a record.
        """
    def offsets(self) -> list[tuple[str, bytes, int, int, int, str]]:
        """Topic name, topic id, partition, offset, leader epoch and metadata of each offset, in order."""
    def answer(self, codes: int | Sequence[int]) -> bytes:
        """The response body: one error code for all offsets, or one for each in order.

        Partitions that do not exist get their own error. Raises ValueError if the number of codes is wrong.
        """

def read_offset_record(
    key: bytes,
    value: bytes | None,
    record_offset: int,
    make: Callable[[tuple[int, int, str, int, int, bytes, int]], _T],
) -> tuple[str, str, int, _T | None] | None:
    """Group, topic, partition and offset of a record of `__consumer_offsets`; None if it is not that of an offset.

    The offset is None for a tombstone, otherwise the result of `make` for offset, leader epoch, metadata, commit time,
    expiry (-1: none), topic id and `record_offset`. Raises ValueError if the record cannot be read.
    """

def offset_record_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset in `__consumer_offsets`. Raises OverflowError for long names."""

def offset_record_value(
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_timestamp_ms: int,
    expire_timestamp_ms: int,
    topic_id: bytes,
) -> bytes:
    """The value of a committed offset: version 4, or version 1 with an expiry (-1: none). Raises OverflowError."""

def group_record_key(record_type: int, *names: str) -> bytes:
    """The key of a record of a group: its type and names. Raises OverflowError for long names."""

def target_record_value(target: Mapping[bytes, Sequence[int]]) -> bytes:
    """The value of a record with a member's target: partitions in ascending order by topic id."""

def assign(
    assignor: str,
    members: Sequence[tuple[str, str | None, Sequence[bytes], Mapping[bytes, Sequence[int]]]],
    partitions: Mapping[bytes, int],
    *,
    homogeneous: bool,
    assignable: Mapping[bytes, Sequence[int]] | None = None,
) -> list[dict[bytes, tuple[int, ...]]]:
    """The new target of each member, by topic id, in the order of the members. Releases the GIL.

    Partitions are in ascending order; a topic without partitions is absent. `assignor` is `uniform`, `range` or
    `simple`, which assign as Apache Kafka's assignors of these names. A member: id, instance id, ids of subscribed
    topics, present target by topic id. `partitions`: the partition count of each subscribed topic that exists; other
    topics are ignored. `homogeneous`: all members have the same subscription, which is read from the first.
    `assignable`: the partitions that `simple` may assign; None: all. Raises ValueError for an unknown assignor or a
    negative count.
    """

def assign_tasks(
    members: Sequence[tuple[str, str, Mapping[str, Iterable[int]], Mapping[str, Iterable[int]]]],
    subtopologies: Sequence[tuple[str, int, bool]],
    *,
    standby_replicas: int,
) -> list[tuple[dict[str, list[int]], dict[str, list[int]]]]:
    """The active and standby tasks of each member of a streams group, in the order of the members. Releases the GIL.

    Assigns as Apache Kafka's sticky task assignor does; where loads are equal, the ids decide. A member: id, process
    id, present active and standby tasks by subtopology. A subtopology: id, number of tasks, and whether they have
    state. Raises ValueError if there are tasks but no members.
    """

def topic_hash(image: Image, topic: str) -> int | None:
    """A topic's part of the metadata hash as a signed 64-bit number (`Utils.computeTopicHash`). None: no such topic."""

def group_hash(hashes: Iterable[tuple[str, int]]) -> int:
    """The metadata hash of a group from its topics' names and hashes (`Utils.computeGroupHash`); 0 without topics."""

@final
class TopicPattern:
    """A pattern in RE2's syntax (as RE2/J 1.8 reads it) that matches whole names in linear time."""

    def __new__(cls, pattern: str) -> Self:
        """Raises ValueError that names what is wrong or not supported; also if it compiles to over 1 MiB."""
    @property
    def pattern(self) -> str: ...
    def matches(self, name: str) -> bool: ...
    def matching(self, image: Image) -> list[str]:
        """The names of topics that match, sorted. Releases the GIL."""
    def among(self, names: Sequence[str]) -> list[str]:
        """Those of `names` that match, in their order. Releases the GIL."""

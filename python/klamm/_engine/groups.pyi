"""OffsetCommit requests, decoded by the engine, and the records of committed offsets."""

from collections.abc import Callable, Sequence
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

"""Native functions for tools: reading a metadata log, checking files of stopped nodes, metadata records as columns."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Self, final

@final
class MetadataReader:
    """Reads the folder of a metadata log while its node may be writing it: takes no lock and changes no file.

    An incomplete batch at the log's end is ignored. Damage elsewhere raises StorageError, which names the file.
    """

    def __new__(cls, directory: str | PathLike[str]) -> Self:
        """`directory` is `<metadata.log.dir>/__cluster_metadata-0`; nothing is read yet."""
    def start_offset(self) -> int | None:
        """The offset at which the first segment begins; None if there is no segment."""
    def end(self) -> tuple[int, str | None]:
        """The offset after the last complete batch, and a description of data after it other than zeroes."""
    def intact_end(self) -> tuple[int, int, str | None]:
        """Offset and epoch at which the intact part ends, and a description of the loss after it. Reads every batch."""
    def offset_after_time(self, timestamp_ms: int) -> int:
        """The offset of the first batch with a later timestamp, or the log end offset."""
    def snapshots(self) -> list[tuple[int, int, str]]:
        """End offset, epoch and file name of the complete snapshots, oldest first."""
    def read(self, offset: int, max_bytes: int) -> bytes:
        """Complete, verified batches, beginning with the batch that contains `offset`; empty at the log's end.

        Raises IndexError if the record was deleted, or the log was truncated below it.
        """

_StorageFinding = tuple[str, Path, int | None, tuple[int, int] | None, str, str]

_StorageLog = tuple[Path, bytes | None, int, int, int, int, int, list[_StorageFinding]]

_StorageDirectory = tuple[Path, bool, list[_StorageLog], list[_StorageFinding]]

@final
class StorageCheck:
    """Checks the files of a stopped node of klamm or Apache Kafka. Takes no lock, changes no file, raises nothing.

    A finding is kind (damaged, missing, note), path, position in the file, offsets `[first, next)`, reason, and what a
    start of the node would do.
    """

    def __new__(cls) -> Self: ...
    def directories(self, paths: Sequence[str | PathLike[str]], is_deep: bool, threads: int) -> list[_StorageDirectory]:
        """Check log directories, or folders of single logs: path, whether the last stop was clean, logs, findings.

        A log is path, topic id, start offset, end offset, segments, batches, bytes, findings. `is_deep`: verify every
        checksum, not only those that a start verifies.
        """
    @staticmethod
    def snapshot(path: str | PathLike[str]) -> _StorageFinding | None:
        """Check a metadata snapshot or `bootstrap.checkpoint`; None if it is intact."""
    def progress(self) -> tuple[int, int]:
        """The bytes of segments read so far, and the total as far as it is known. Callable from any thread."""
    def cancel(self) -> None:
        """Let `directories` return soon, with the findings so far. Callable from any thread."""

def metadata_rows(data: bytes) -> list[tuple[int, int, int, int, int | None, bytes]]:
    """The records of complete batches: offset, the batch's base offset, epoch, timestamp in ms, type of a control
    record or None, value. Raises RecordsDamagedError."""

@final
class MetadataColumns:
    """Metadata records as Arrow columns: `pyarrow.record_batch(columns)` takes them over without a copy."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """The schema and array capsules of a struct of the columns. May be called several times."""

    def __len__(self) -> int:
        """The number of records."""

def metadata_columns(data: bytes, record_type: int) -> MetadataColumns:
    """The records of one type in complete batches, which are verified.

    The columns are offset and batch (the batch's base offset) int64, epoch int32, timestamp (us, UTC, null if unknown),
    version int32, and one for each field by its name: int32 for integers up to 32 bits, ids as text. Passwords, values
    of unknown configuration keys and SCRAM credentials are "(hidden)". Raises RecordsDamagedError; MetadataRecordError,
    with the offset, if a record cannot be decoded; ValueError for an unknown type.
    """

def metadata_overview(
    data: bytes,
    *,
    types: Sequence[int] | None = None,
    controls: Sequence[int] | None = None,
    with_fields: bool = True,
) -> MetadataColumns:
    """The records of complete batches, including control records; with `types` or `controls`, only those types.

    The columns are offset, batch, epoch and timestamp as above, type (Kafka's name), control (bool), version, topic_id,
    partition and broker (null if the record names none), and fields (JSON, with the same values hidden). A record that
    cannot be decoded is shown with its bytes in hexadecimal. Raises RecordsDamagedError.
    """

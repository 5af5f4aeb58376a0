"""The records of a metadata log as values."""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm._engine.tools import metadata_rows
from klamm.protocol.generated import metadata_records
from klamm.protocol.generated.metadata_records import MetadataRecord
from klamm.raft.log import control_records

CONTROL_NAMES: Final = {
    control_records.LEADER_CHANGE: "LeaderChange",
    control_records.SNAPSHOT_HEADER: "SnapshotHeader",
    control_records.SNAPSHOT_FOOTER: "SnapshotFooter",
    control_records.KRAFT_VERSION: "KRaftVersion",
    control_records.KRAFT_VOTERS: "KRaftVoters",
}
_TYPES: Final = {
    record.TYPE: record.__name__.removesuffix("Record")
    for record in vars(metadata_records).values()
    if isinstance(record, type) and hasattr(record, "TYPE")
}


class Entry(NamedTuple):
    """One record. In a snapshot file the offsets count from 0 and are unrelated to those of the log."""

    offset: int
    batch: int
    """The first offset of its batch: records that the controller decided together are in one batch."""
    epoch: int
    timestamp_ms: int
    control: int | None
    """The type of one of raft's own records; None for the controller's."""
    value: bytes

    @property
    def type_id(self) -> int:
        """The id of a metadata record's type; -1 if it has none."""
        # The frame is frame version, type and record version, a byte each up to 127 (`MetadataRecordSerde`).
        return self.value[1] if self.control is None and len(self.value) > 1 else -1

    @property
    def type_name(self) -> str:
        """`Topic`, `PartitionChange`, `LeaderChange` ...; a number in words where it is unknown."""
        if self.control is not None:
            return CONTROL_NAMES.get(self.control, f"control record {self.control}")
        return _TYPES.get(self.type_id, f"record {self.type_id}")

    def record(self) -> MetadataRecord:
        """The metadata record. `MetadataRecordError`: damaged, or written by a newer version."""
        return metadata_records.decode(self.value)


def entries_of(batches: bytes) -> list[Entry]:
    """Every record of whole batches, control records too. `RecordsDamagedError`."""
    return list(map(Entry._make, metadata_rows(batches)))


def type_names() -> list[str]:
    """Every name that `Entry.type_name` knows."""
    return sorted({*_TYPES.values(), *CONTROL_NAMES.values()})

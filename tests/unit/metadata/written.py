"""The metadata log of a controller on disk: each decision is written at once, as a batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.unit.controller.cluster import LATEST, Cluster, bootstrap

from klamm._engine.quorum import MetadataLog
from klamm.protocol.generated.metadata_records import MetadataRecord, encode_at
from klamm.raft.log.control_records import LEADER_CHANGE, encode_leader_change

EPOCH = 1
FOLDER = "__cluster_metadata-0"


def open_log(directory: Path, *, segment_bytes: int = 8 << 20) -> MetadataLog:
    """The metadata log in a log directory."""
    return MetadataLog(directory / FOLDER, segment_bytes=segment_bytes, segment_ms=1 << 40, now_ms=0)


class WrittenCluster(Cluster):
    """The controller of the unit tests on a log that `klamm.metadata` reads while it is open."""

    def __init__(self, directory: Path, *, segment_bytes: int = 8 << 20, **settings: Any) -> None:
        self.native = open_log(directory, segment_bytes=segment_bytes)
        self.epoch = EPOCH
        super().__init__(**settings)

    def lead(self, epoch: int, voters: tuple[int, ...] = (0,)) -> None:
        """Write a leader's first record. It comes first, because the controller numbers only its own records."""
        self.epoch = epoch
        self.native.append_control([(LEADER_CHANGE, encode_leader_change(0, voters, voters))], epoch, self.now_ms)

    def append(self, records: Sequence[bytes]) -> None:
        self.native.append(list(records), self.epoch, self.now_ms)
        super().append(records)

    def write(self, *records: MetadataRecord) -> int:
        """Write records that this controller does not write itself, as one batch; returns the last offset."""
        encoded = [encode_at(record, 30) for record in records]
        last = self.native.append(encoded, self.epoch, self.now_ms)
        super().append(encoded)
        return last

    def flush(self) -> None:
        """Flush all records to the files."""
        self.native.read(self.native.end_offset - 1, 1)


__all__ = ["LATEST", "WrittenCluster", "bootstrap", "open_log"]

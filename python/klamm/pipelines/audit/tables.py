"""The names of the record tables, and the columns of those that raft writes itself."""

from __future__ import annotations

from typing import Final

from klamm.pipelines.errors import PipelineError
from klamm.protocol.generated import metadata_records
from klamm.raft.log import control_records

RECORD_TYPES: Final = {
    name: found.TYPE
    for name, found in vars(metadata_records).items()
    if isinstance(found, type) and hasattr(found, "TYPE")
}
"""Ids by the names that Apache Kafka has."""
_IDS: Final = "array<int>"
_VOTERS: Final = "array<struct<id: int, directory_id: string, endpoints: array<string>>>"
CONTROL_TYPES: Final = {
    "LeaderChangeMessage": (
        control_records.LEADER_CHANGE,
        f"leader_id int, voters {_IDS}, granting_voters {_IDS}",
    ),
    "SnapshotHeaderRecord": (control_records.SNAPSHOT_HEADER, "last_contained_log_timestamp long"),
    "SnapshotFooterRecord": (control_records.SNAPSHOT_FOOTER, None),
    "KRaftVersionRecord": (control_records.KRAFT_VERSION, "kraft_version int"),
    "VotersRecord": (control_records.KRAFT_VOTERS, f"voters {_VOTERS}"),
}
"""Raft's own records: their types, and the columns of their fields as Spark writes them."""
_BY_LOWER: Final = {name.lower(): name for name in (*RECORD_TYPES, *CONTROL_TYPES)}


def table_names() -> list[str]:
    """Every record type; those of metadata come first."""
    return [*RECORD_TYPES, *CONTROL_TYPES]


def table_name(text: str) -> str:
    """The full name; case and the ending Record may be omitted. PipelineError lists the names."""
    lower = text.lower()
    for candidate in (lower, f"{lower}record", f"{lower}message"):
        if candidate in _BY_LOWER:
            return _BY_LOWER[candidate]
    raise PipelineError(f"there is no record type '{text}': use one of {', '.join(table_names())}")

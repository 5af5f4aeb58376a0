"""The history of a cluster's metadata, read from a node's files: of klamm or of Apache Kafka, running or not.

    history = History("klamm-data")                     # a log directory, a server.properties, or a snapshot
    for entry in history.records():
        print(entry.offset, entry.type_name, entry.record() if entry.control is None else "")
    state = history.state_at("2026-01-31T12:00")        # or an offset, "end", "end-10", "15m" (ago)
    print(state.image.topic_names(), state.quorum.voters)
    for change in changes_between(history.state_at("1h"), state):
        print(change.kind, change.name, change.text)
    print(partition_history(history, "orders", 0).state)
    table = partitions_table(history)                   # pyarrow; so does records_table(history)

Nothing is locked and nothing is changed. The log is that one node's: its newest records may not be committed yet. Every
failure is a HistoryError that names the file and the way out.
"""

from __future__ import annotations

from klamm.metadata.diff import Change, changes_between
from klamm.metadata.errors import HistoryError
from klamm.metadata.log.entries import Entry
from klamm.metadata.log.history import History, State
from klamm.metadata.log.moments import Moment, parse_moment
from klamm.metadata.log.quorum import Quorum
from klamm.metadata.partitions.partition_history import PartitionChange, PartitionHistory, partition_history
from klamm.metadata.rendering.descriptions import RecordDescriber
from klamm.metadata.rendering.tables import partitions_table, records_table
from klamm.metadata.state import state_fields

__all__ = [
    "Change",
    "Entry",
    "History",
    "HistoryError",
    "Moment",
    "PartitionChange",
    "PartitionHistory",
    "Quorum",
    "RecordDescriber",
    "State",
    "changes_between",
    "parse_moment",
    "partition_history",
    "partitions_table",
    "records_table",
    "state_fields",
]

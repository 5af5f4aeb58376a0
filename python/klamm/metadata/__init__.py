"""The history of a cluster's metadata, read from a node's files: of klamm or of Apache Kafka, running or not.

    history = History("klamm-data")                     # a log directory, a server.properties, or a snapshot
    for entry in history.records():
        print(entry.offset, entry.type_name, entry.record() if entry.control is None else "")
    state = history.state_at("2026-01-31T12:00")        # or an offset, "end", "end-10", "15m" (ago)
    print(state.image.topic_names(), state.quorum.voters)
    for change in changes_between(history.state_at("1h"), state):
        print(change.kind, change.name, change.text)
    print(tell_story(history, "orders", 0).now)
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
from klamm.metadata.rendering.narrator import Narrator
from klamm.metadata.rendering.tables import partitions_table, records_table
from klamm.metadata.state import state_fields
from klamm.metadata.stories.story import Chapter, Story, tell_story

__all__ = [
    "Change",
    "Chapter",
    "Entry",
    "History",
    "HistoryError",
    "Moment",
    "Narrator",
    "Quorum",
    "State",
    "Story",
    "changes_between",
    "parse_moment",
    "partitions_table",
    "records_table",
    "state_fields",
    "tell_story",
]

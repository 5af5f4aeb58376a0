"""A history as Arrow tables. Needs pyarrow: `pip install klamm[arrow]`."""

from __future__ import annotations

import json
from typing import Any

from klamm.metadata.errors import HistoryError
from klamm.metadata.log.entries import Entry
from klamm.metadata.log.history import History
from klamm.metadata.log.moments import END, Moment
from klamm.metadata.rendering.fields import fields_of
from klamm.protocol.uuids import uuid_text


def records_table(history: History, start: int | None = None, end: int | None = None) -> Any:
    """The records of offsets `[start, end)` as a pyarrow.Table, raft's control records among them.

    offset int64, batch int64 (its batch's first offset), epoch int32, timestamp (ms, UTC), type string, control
    bool, topic_id string, partition int32 and broker int32 (null where the record has none), fields string (JSON;
    ids as Kafka writes them, secrets hidden). HistoryError.
    """
    pa = _pyarrow()
    rows = [_row(entry) for entry in history.records(start, end)]
    schema = pa.schema(
        [
            ("offset", pa.int64()),
            ("batch", pa.int64()),
            ("epoch", pa.int32()),
            ("timestamp", pa.timestamp("ms", "UTC")),
            ("type", pa.string()),
            ("control", pa.bool_()),
            ("topic_id", pa.string()),
            ("partition", pa.int32()),
            ("broker", pa.int32()),
            ("fields", pa.string()),
        ]
    )
    return pa.Table.from_pylist(rows, schema)


def partitions_table(history: History, at: Moment | str | int = END) -> Any:
    """Every partition as of a moment, as a pyarrow.Table. HistoryError.

    topic and topic_id string, partition, leader (null: none), leader_epoch and partition_epoch int32, replicas, isr,
    elr, last_known_elr, adding_replicas and removing_replicas list<int32>, directories list<string>. The schema's
    metadata says the `offset` that it is the state of.
    """
    pa = _pyarrow()
    state = history.state_at(at)
    image = state.image.stable
    ids = pa.list_(pa.int32())
    lists = ("replicas", "isr", "elr", "last_known_elr", "adding_replicas", "removing_replicas")
    numbers = ("partition", "leader", "leader_epoch", "partition_epoch")
    rows = []
    for name in image.topic_names():
        topic_id = image.topic_id(name) or b""
        for one in image.partitions(topic_id):
            row = {column: getattr(one, column) for column in (*numbers[2:], *lists)}
            leader = None if one.leader < 0 else one.leader
            row |= {"topic": name, "topic_id": uuid_text(topic_id), "partition": one.index, "leader": leader}
            rows.append(row | {"directories": list(map(uuid_text, one.directories))})
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("topic_id", pa.string()),
            *((column, pa.int32()) for column in numbers),
            *((column, ids) for column in lists),
            ("directories", pa.list_(pa.string())),
        ],
        metadata={"offset": str(state.offset)},
    )
    return pa.Table.from_pylist(rows, schema)


def _row(entry: Entry) -> dict[str, Any]:
    fields = fields_of(entry)
    broker = fields.get("id") if entry.type_name in ("FenceBroker", "UnfenceBroker") else fields.get("broker_id")
    return {
        "offset": entry.offset,
        "batch": entry.batch,
        "epoch": entry.epoch,
        "timestamp": entry.timestamp_ms if entry.timestamp_ms >= 0 else None,
        "type": entry.type_name,
        "control": entry.control is not None,
        "topic_id": fields.get("topic_id"),
        "partition": fields.get("partition_id"),
        "broker": broker,
        "fields": json.dumps(fields, ensure_ascii=False),
    }


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        raise HistoryError("Arrow tables need pyarrow: pip install 'klamm[arrow]'") from None
    return pa

"""Records in an archive's columns."""

from __future__ import annotations

import pyarrow as pa

from klamm.pipelines.archive.schema import SCHEMA


def batch(rows: list[dict[str, object]]) -> pa.RecordBatch:
    """Rows in which only non-default values are given."""
    default = {
        "key": None,
        "value": None,
        "headers": None,
        "timestamp": 0,
        "timestampType": 0,
        "partition": 0,
        "offset": 0,
    }
    whole = [default | row for row in rows]
    return pa.RecordBatch.from_arrays(
        [pa.array([row[field.name] for row in whole], field.type) for field in SCHEMA], schema=SCHEMA
    )


def offsets(*numbers: int) -> pa.RecordBatch:
    """A row per offset."""
    return batch([{"offset": number, "value": b"%d" % number} for number in numbers])

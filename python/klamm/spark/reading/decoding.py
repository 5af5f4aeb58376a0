"""Decodes Arrow columns to Arrow columns; no Python runs per record.

pyarrow's decoders process all values of a batch together, and fail if one is bad. Then the halves are tried, and their
halves, until the bad ones are found: many bad records make a batch slow, good ones cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

Decoder = Callable[[pa.Array], pa.Array]
"""Decodes binary values, nulls to nulls; the ArrowInvalid describes a bad value."""

_JSON_SPACE = " \t\n\r"


class Decoded(NamedTuple):
    """The values, with null for bad ones; the positions of the bad ones, ascending, and the cause for the first."""

    values: pa.Array
    bad: list[int]
    why: str | None


def decode(raw: pa.Array, decoder: Decoder, kind: pa.DataType) -> Decoded:
    """Decode all good values; `kind` is the type of the result."""
    bad: list[tuple[int, str]] = []
    pieces = _pieces(raw, decoder, kind, 0, bad)
    values = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
    return Decoded(values, [place for place, _ in bad], bad[0][1] if bad else None)


def _pieces(
    raw: pa.Array, decoder: Decoder, kind: pa.DataType, first: int, bad: list[tuple[int, str]]
) -> list[pa.Array]:
    try:
        return [decoder(raw)]
    except pa.ArrowInvalid as error:
        if len(raw) == 1:
            bad.append((first, str(error)))
            return [pa.nulls(1, kind)]
        half = len(raw) // 2
        left = _pieces(raw[:half], decoder, kind, first, bad)
        return left + _pieces(raw[half:], decoder, kind, first + half, bad)


def decode_string(raw: pa.Array) -> pa.Array:
    """Text in UTF-8."""
    return raw.cast(pa.string())


def json_decoder(kind: pa.StructType) -> Decoder:
    """Decodes JSON objects with these fields: other fields are ignored, missing ones are null."""
    options = pyarrow.json.ParseOptions(
        explicit_schema=pa.schema(list(kind)), newlines_in_values=True, unexpected_field_behavior="ignore"
    )

    def decode_json(raw: pa.Array) -> pa.Array:
        texts = pc.ascii_trim(raw.drop_null().cast(pa.string()), _JSON_SPACE)
        if not len(texts):
            return pa.nulls(len(raw), kind)
        # Each value must be an object, so that one value cannot be parsed as several objects.
        if not pc.all(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))).as_py():
            raise pa.ArrowInvalid("it is not a JSON object")
        found = _read(texts, options)
        if len(found) != len(texts):
            raise pa.ArrowInvalid(f"{len(texts)} values have {len(found)} objects of JSON")
        objects = pa.StructArray.from_arrays(
            [column.combine_chunks() for column in found.select([field.name for field in kind]).columns],
            fields=list(kind),
        )
        return objects if not raw.null_count else objects.take(_where_valid(raw))

    return decode_json


def _read(texts: pa.Array, options: Any) -> pa.Table:
    lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), "\n")[0].as_buffer()
    whole = pyarrow.json.ReadOptions(use_threads=False, block_size=lines.size + 1)
    return pyarrow.json.read_json(pa.BufferReader(lines), read_options=whole, parse_options=options)


def _where_valid(raw: pa.Array) -> pa.Array:
    """The index of each value among the non-null ones, or null."""
    is_valid = raw.is_valid()
    numbers = pc.subtract(pc.cumulative_sum(is_valid.cast(pa.int32())), 1)
    return pc.if_else(is_valid, numbers, pa.scalar(None, pa.int32()))

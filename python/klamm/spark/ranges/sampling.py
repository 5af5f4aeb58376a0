"""Samples the bytes per offset in a range, before the driver splits ranges by bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from klamm._engine.client import OffsetOutOfRangeError
from klamm.spark.cluster_view import connect
from klamm.spark.ranges.byte_cuts import Density, cut_by_bytes, places
from klamm.spark.ranges.offsets import OffsetRange

if TYPE_CHECKING:
    from klamm._engine.client import KafkaClient
    from klamm.spark.options.options import SourceOptions

_SAMPLE_BYTES: Final = 64 << 10
_AT_ONCE: Final = 8
_COLUMNS: Final = ("key", "value", "headers")


def cut_large(options: SourceOptions, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The ranges split into pieces of about `maxBytesPerPartition`, if that option is set."""
    bytes_max = options.task_bytes_max
    wanted = [one for one in ranges if one.size > 0]
    if bytes_max is None or not wanted:
        return wanted
    from concurrent.futures import ThreadPoolExecutor

    keys = {**options.client, "max.partition.fetch.bytes": str(_SAMPLE_BYTES)}
    with connect(keys) as client, ThreadPoolExecutor(_AT_ONCE, "klamm-sampling") as pool:
        densities = pool.map(lambda one: _densities(client, one), wanted)
        return [
            piece for one, known in zip(wanted, densities, strict=True) for piece in cut_by_bytes(one, known, bytes_max)
        ]


def _densities(client: KafkaClient, wanted: OffsetRange) -> list[Density]:
    found = (_density(client, wanted, offset) for offset in places(wanted))
    return [density for density in found if density is not None]


def _density(client: KafkaClient, wanted: OffsetRange, offset: int) -> Density | None:
    """A sample; None if the offset no longer exists or no record arrived: the reader reports that."""
    try:
        fetched = client.fetch(*wanted.partition, offset, wanted.end, columns=_COLUMNS, max_bytes=_SAMPLE_BYTES)
    except OffsetOutOfRangeError:
        return None
    passed = fetched.next_offset - offset
    return Density(offset, pa.record_batch(fetched).nbytes / passed) if passed > 0 else None

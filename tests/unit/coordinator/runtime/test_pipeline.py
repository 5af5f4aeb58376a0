"""Writes that are no plain batches of records, in a pipeline without a shard."""

from __future__ import annotations

import pytest

from klamm.coordinator.runtime.log import Marker, Producer
from klamm.coordinator.runtime.pipeline import RECORDS_IN_FLIGHT_MAX, Pipeline, Write

PRODUCER = Producer(7, 3)


@pytest.mark.parametrize("is_marker", [False, True])
def test_markers_in_flight_are_as_many_as_records(is_marker: bool) -> None:
    pipeline: Pipeline[None, None] = Pipeline(1_000, 1_000, lambda: None)
    for _ in range(RECORDS_IN_FLIGHT_MAX + 1):
        if is_marker:
            pipeline.write_marker(Marker(PRODUCER, True, 0, 2))
        else:
            pipeline.write([(b"k", b"v")], producer=PRODUCER)
    taken: list[Write[None]] = list(iter(pipeline.take_append, None))
    assert len(taken) == RECORDS_IN_FLIGHT_MAX
    pipeline.on_committed(0, taken[1])
    assert len(list(iter(pipeline.take_append, None))) == 1
    assert not pipeline.is_idle

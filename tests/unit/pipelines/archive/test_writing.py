from __future__ import annotations

import pytest
from tests.unit.pipelines.archive.records import batch

from klamm.pipelines.archive.writing import by_date

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("timestamp_ms", "date"),
    [
        (0, "1970-01-01"),
        (-1, "1969-12-31"),
        (-DAY_MS, "1969-12-31"),
        (-DAY_MS - 1, "1969-12-30"),
        (1_700_000_000_000, "2023-11-14"),
        (2**52, "9999-12-31"),
        (-(2**52), "0001-01-01"),
    ],
)
def test_a_record_is_stored_under_its_day_in_utc(timestamp_ms: int, date: str) -> None:
    assert [day for day, _ in by_date(batch([{"timestamp": timestamp_ms}]))] == [date]


def test_the_records_of_a_day_keep_their_order() -> None:
    rows = batch([{"offset": number, "timestamp": number % 3 * DAY_MS} for number in range(9)])
    found = {day: kept.column("offset").to_pylist() for day, kept in by_date(rows)}
    assert found == {"1970-01-01": [0, 3, 6], "1970-01-02": [1, 4, 7], "1970-01-03": [2, 5, 8]}

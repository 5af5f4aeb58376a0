"""The checker of histories finds each anomaly that is added to a correct one, and none in the correct one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.log_history import Anomaly, LogHistory

Log = dict[int, list[tuple[int, str]]]


def right() -> tuple[LogHistory, Log]:
    """Two producers, two partitions; one record was not acknowledged, but is in the log."""
    history = LogHistory()
    log: Log = {0: [(0, "1-0"), (1, "2-0"), (2, "1-1"), (4, "2-3")], 1: [(0, "1-2"), (1, "2-1"), (2, "2-2")]}
    for partition, records in log.items():
        for offset, value in records:
            history.on_send(partition, value)
            history.on_poll("a" if partition == 0 else "b", partition, offset, value)
            if value != "2-2":
                history.on_acknowledged(partition, offset, value)
    history.on_send(0, "1-9")  # neither acknowledged nor written
    history.on_poll("c", 0, 0, "1-0")  # of another member of the group
    return history, log


def test_a_correct_history_has_no_findings() -> None:
    history, log = right()
    assert history.findings(log) == []


def lose(history: LogHistory, log: Log) -> None:
    log[0].pop()
    history.polled["a"].pop()


def lose_the_first_of_a_partition(history: LogHistory, log: Log) -> None:
    log[1].pop(0)
    history.polled["b"].pop(0)


def double(history: LogHistory, log: Log) -> None:
    log[0].append((5, "1-1"))


def reorder(history: LogHistory, log: Log) -> None:
    history.on_send(0, "1-0")
    log[0].append((5, "1-9"))
    log[0].append((6, "1-8"))
    history.on_send(0, "1-8")


def show_another_value_to_a_consumer(history: LogHistory, log: Log) -> None:
    history.polled["b"][1] = (1, 1, "2-2")


def acknowledge_another_offset(history: LogHistory, log: Log) -> None:
    history.acknowledged[0] = (0, 3, "1-0")


def poll_backwards(history: LogHistory, log: Log) -> None:
    history.on_poll("a", 0, 1, "2-0")


def poll_twice(history: LogHistory, log: Log) -> None:
    history.on_poll("b", 1, 2, "2-2")


def hide(history: LogHistory, log: Log) -> None:
    history.polled["b"].pop()


def invent(history: LogHistory, log: Log) -> None:
    log[1].append((3, "7-0"))
    history.on_poll("b", 1, 3, "7-0")


@pytest.mark.parametrize(
    ("plant", "anomaly"),
    [
        (lose, Anomaly.LOST),
        (lose_the_first_of_a_partition, Anomaly.LOST),
        (double, Anomaly.DUPLICATE),
        (reorder, Anomaly.REORDER),
        (show_another_value_to_a_consumer, Anomaly.INCONSISTENT_OFFSETS),
        (acknowledge_another_offset, Anomaly.INCONSISTENT_OFFSETS),
        (poll_backwards, Anomaly.NON_MONOTONIC_POLL),
        (poll_twice, Anomaly.NON_MONOTONIC_POLL),
        (hide, Anomaly.UNSEEN),
        (invent, Anomaly.UNKNOWN),
    ],
)
def test_a_planted_anomaly_is_found(plant: Callable[[LogHistory, Log], None], anomaly: Anomaly) -> None:
    history, log = right()
    plant(history, log)
    assert anomaly in {finding.anomaly for finding in history.findings(log)}

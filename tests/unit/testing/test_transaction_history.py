"""The checker of copies finds each anomaly that is added to a correct history, and none in the correct one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tests.support.transaction_history import Anomaly, Copied, CopyHistory, Outcome, Written


@dataclass
class Story:
    """A history, and the records of the topics at its end."""

    history: CopyHistory
    source: dict[int, list[tuple[int, str]]]
    copies: dict[int, list[tuple[int, str]]]
    committed: dict[int, int]

    def anomalies(self) -> set[Anomaly]:
        """The anomalies that are found."""
        return {each.anomaly for each in self.history.findings(self.source, self.copies, self.committed)}


def written(transaction: str, size: int, index: int) -> str:
    return Written(transaction, size, index).encode().decode()


def copied(*fields: int | str) -> str:
    return Copied(*fields).encode().decode()  # type: ignore[arg-type]


def right() -> Story:
    """Three transactions of the source in two partitions, copied by two copiers, one of which aborted one."""
    source = {
        0: [(0, written("s0", 2, 0)), (2, written("s1", 1, 0))],
        1: [(0, written("s0", 2, 1)), (5, written("s2", 1, 0))],
    }
    copies = {
        0: [(0, copied("a0", 2, 0, 0, 0, source[0][0][1])), (1, copied("a0", 2, 1, 0, 2, source[0][1][1]))],
        1: [(3, copied("b1", 1, 0, 1, 0, source[1][0][1])), (5, copied("b2", 1, 0, 1, 5, source[1][1][1]))],
    }
    history = CopyHistory(
        source={"s0": Outcome.COMMITTED, "s1": Outcome.COMMITTED, "s9": Outcome.ABORTED},  # s2: unknown
        copiers={"a0": Outcome.COMMITTED, "b0": Outcome.ABORTED, "b1": Outcome.COMMITTED},
        seen=[(partition, *record) for partition, records in copies.items() for record in records],
    )
    history.check_offsets(2, {0: 3})
    return Story(history, source, copies, {0: 3, 1: 7})


def test_a_correct_history_has_no_findings() -> None:
    assert right().anomalies() == set()


def lose(story: Story) -> None:
    story.history.copiers["b3"] = Outcome.COMMITTED


def lose_at_the_source(story: Story) -> None:
    story.history.source["s3"] = Outcome.COMMITTED


def show_aborted(story: Story) -> None:
    story.history.copiers["b2"] = Outcome.ABORTED


def tear(story: Story) -> None:
    story.copies[0].pop()


def double(story: Story) -> None:
    story.copies[0].append((9, story.copies[0][1][1]))


def skip(story: Story) -> None:
    story.copies[1].pop()


def copy_twice(story: Story) -> None:
    story.copies[1].append((9, copied("b3", 1, 0, 1, 5, story.source[1][1][1])))


def copy_aborted(story: Story) -> None:
    story.copies[1].append((9, copied("b3", 1, 0, 1, 6, written("s9", 1, 0))))


def reorder(story: Story) -> None:
    (first, one), (second, other) = story.copies[1]
    story.copies[1] = [(first, other), (second, one)]


def commit_too_little(story: Story) -> None:
    story.committed[1] = 5


def commit_too_late(story: Story) -> None:
    story.history.check_offsets(2, {0: 2})


def forget_what_was_seen(story: Story) -> None:
    story.history.seen.append((1, 8, copied("b3", 1, 0, 1, 6, "")))


@pytest.mark.parametrize(
    ("plant", "anomaly"),
    [
        (lose, Anomaly.LOST),
        (lose_at_the_source, Anomaly.LOST),
        (show_aborted, Anomaly.ABORTED),
        (tear, Anomaly.TORN),
        (double, Anomaly.DOUBLED),
        (skip, Anomaly.NOT_COPIED),
        (copy_twice, Anomaly.COPIED_TWICE),
        (copy_aborted, Anomaly.NEVER_WRITTEN),
        (reorder, Anomaly.REORDERED),
        (commit_too_little, Anomaly.OFFSET_BEHIND),
        (commit_too_late, Anomaly.OFFSET_BEHIND),
        (forget_what_was_seen, Anomaly.VANISHED),
    ],
)
def test_each_anomaly_is_found(plant: Callable[[Story], None], anomaly: Anomaly) -> None:
    story = right()
    plant(story)
    assert anomaly in story.anomalies()

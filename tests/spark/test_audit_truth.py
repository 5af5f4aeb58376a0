"""The answers of `klamm audit` for a random log of thousands of records, compared with what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from klamm.metadata import History
from klamm.pipelines.audit import QUESTIONS, Audit, open_audit
from klamm.pipelines.audit import audit as auditing
from klamm.pipelines.audit.questions import HISTORY
from klamm.pipelines.audit.rows import rows_of_answer
from klamm.protocol.uuids import uuid_text
from tests.support.metadata_life import Interval, Life, Truth

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 8000


class Lived(NamedTuple):
    """A log and what happened in it."""

    audit: Audit
    truth: Truth


@pytest.fixture(scope="module")
def lived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    folder = tmp_path_factory.mktemp("life")
    life = Life(folder, seed=5, brokers=7, topics=20, segment_bytes=100_000)
    truth = life.live(RECORDS, snapshots=2)
    life.close()
    with open_audit(folder, spark=spark) as audit:
        yield Lived(audit, truth)


def rows(answer: DataFrame, columns: str) -> list[tuple[Any, ...]]:
    """Rows with times in ms."""
    from pyspark.sql import functions as f

    times = {field.name for field in answer.schema if field.dataType.typeName() == "timestamp"}
    shown = [f.unix_millis(name).alias(name) if name in times else f.col(name) for name in columns.split()]
    return [tuple(row) for row in answer.select(*shown).collect()]


def place(key: object) -> tuple[str, int]:
    """A partition, with its topic id as text."""
    assert isinstance(key, tuple)
    return uuid_text(key[0]), key[1]


def test_the_log_contains_every_event(lived: Lived) -> None:
    truth = lived.truth
    assert min(truth.moves.values()) > 10
    assert set(truth.configs) == {"set", "changed", "repeated", "removed", "deleted", "replaced"}
    assert {change for _, change in truth.isr_changes} == {"left", "entered", "removed"}
    for many in (truth.unclean, truth.under_replicated, truth.leaderless, truth.fenced, truth.elections):
        assert len(many) > 5
    assert len(lived.audit.plan.snapshots) == 2
    image = History(lived.audit.plan.path.parent).state_at().image
    assert image.partition_count > 100


def test_leaders(lived: Lived) -> None:
    found = rows(lived.audit.leadership(), "kind is_unclean")
    assert Counter(kind for kind, _ in found) == lived.truth.moves
    assert sum(is_unclean for _, is_unclean in found) == len(lived.truth.unclean)
    unclean = rows(lived.audit.unclean_elections(), "topic_id partition timestamp")
    assert sorted(unclean) == sorted((*place((topic, at)), time) for topic, at, time in lived.truth.unclean)


def test_isrs(lived: Lived) -> None:
    found = rows(lived.audit.isr_changes(), "broker change")
    assert Counter(found) == lived.truth.isr_changes
    churn = {broker: counts for broker, *counts in rows(lived.audit.isr_churn(), "broker shrinks expands removed")}
    assert churn == {
        broker: [lived.truth.isr_changes[broker, change] for change in ("left", "entered", "removed")]
        for broker in {broker for broker, _ in lived.truth.isr_changes}
    }


@pytest.mark.parametrize("question", ["under_replicated", "leaderless"])
def test_durations_of_partition_states(lived: Lived, question: str) -> None:
    found = rows(lived.audit.ask(question), "topic_id partition from_time to_time duration_ms")
    end = lived.audit.plan.end_time_ms
    intervals: list[Interval] = getattr(lived.truth, question)
    expected = [
        (*place(one.key), one.from_ms, one.to_ms, (end if one.to_ms is None else one.to_ms) - one.from_ms)
        for one in intervals
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_brokers(lived: Lived) -> None:
    found = rows(lived.audit.broker_states().where("state = 'fenced'"), "broker from_time to_time")
    assert sorted(found, key=str) == sorted(map(tuple, lived.truth.fenced), key=str)


def test_configs_and_the_quorum(lived: Lived) -> None:
    assert Counter(change for (change,) in rows(lived.audit.config_changes(), "change")) == lived.truth.configs
    assert sorted(rows(lived.audit.elections(), "epoch leader length_ms")) == lived.truth.elections


@pytest.mark.parametrize("question", [*QUESTIONS, HISTORY])
def test_spark_gives_the_answers_of_this_process(lived: Lived, question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = lived.audit.answer(question)
    monkeypatch.setattr(auditing, "IN_MEMORY_BYTES", lived.audit.size_bytes // 3)
    with open_audit(lived.audit.plan.path.parent, spark=lived.audit.spark) as audit:
        assert not audit.fits_in_memory
        shared = audit.answer(question)
        columns = " ".join(alone.schema.names)
        frames = [sorted(map(str, rows(one.ask(question), columns))) for one in (audit, lived.audit)]
    assert frames[0] == frames[1]
    assert shared.schema.names == alone.schema.names
    answers = [sorted(map(str, rows_of_answer(one))) for one in (shared, alone)]
    assert answers[0] == answers[1]

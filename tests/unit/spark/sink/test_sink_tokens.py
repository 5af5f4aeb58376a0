"""What a task does with its rows, and when a batch is rejected."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from klamm.spark.sink.sink_tokens import (
    DeliveryError,
    GroupTokens,
    Report,
    Rows,
    TaskAction,
    TaskIdentity,
    Token,
    check_replay,
    choose,
    identify,
    name_of_query,
    read_tokens,
)

TASK = TaskIdentity("q", "run2", 7, 1)
ROWS = Rows(10, 0xABC)


def token(batch: int, partition: int, run: str = "run1", rows: Rows = ROWS) -> Token:
    return Token(batch, partition, run, rows)


def test_a_task_identifies_itself_by_sparks_properties() -> None:
    properties = {"sql.streaming.queryId": "q", "spark.jobGroup.id": "run2", "streaming.sql.batchId": "7", "other": "x"}
    assert identify(properties, 1) == TASK
    assert TASK.name("p") == "p-q-1"
    assert name_of_query("p", TASK.query) == "p-q"


@pytest.mark.parametrize("missing", ["sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId"])
def test_other_tasks_than_those_of_micro_batches_are_rejected(missing: str) -> None:
    properties: Mapping[str, str | None] = {
        "sql.streaming.queryId": "q",
        "spark.jobGroup.id": "r",
        "streaming.sql.batchId": "7",
        missing: None,
    }
    with pytest.raises(DeliveryError, match="needs a query of micro-batches"):
        identify(properties, 1)


def test_the_newest_token_round_trips() -> None:
    one = token(7, 3, rows=Rows(5, 2**64 - 1))
    older = token(6, 3)
    assert read_tokens("g", [("t", 0, 7, one.metadata()), ("u", 0, 6, older.metadata())]) == GroupTokens(one)
    assert read_tokens("g", [("t", 0, None, ""), ("u", 0, 6, older.metadata())]) == GroupTokens(older, True)
    assert read_tokens("g", []) == GroupTokens()


@pytest.mark.parametrize("metadata", ["", "{}", "[]", "7", '{"run": "r", "task": 0, "rows": 1, "digest": "no"}'])
def test_offsets_of_another_group_are_rejected(metadata: str) -> None:
    with pytest.raises(DeliveryError, match=r"group 'g' has an offset without the token"):
        read_tokens("g", [("t", 0, 7, metadata)])


def test_row_digests_add_up() -> None:
    assert Rows(1, 2**64 - 1) + Rows(2, 3) == Rows(3, 2)


NONE = GroupTokens()


@pytest.mark.parametrize(
    ("own", "of_query", "may_wait", "action"),
    [
        (NONE, NONE, True, TaskAction.COMMIT),
        (GroupTokens(token(6, 1)), GroupTokens(token(6, 0)), True, TaskAction.COMMIT),
        (NONE, GroupTokens(token(7, 0, "run2")), True, TaskAction.COMMIT),
        (NONE, GroupTokens(token(7, 0, "run2"), True), True, TaskAction.COMMIT),
        (GroupTokens(token(7, 1)), NONE, True, TaskAction.COMPARE),
        (GroupTokens(token(7, 1, "run2")), GroupTokens(token(7, 0, "run2"), True), True, TaskAction.COMPARE),
        (NONE, GroupTokens(token(7, 0)), True, TaskAction.PREPARE),
        (NONE, GroupTokens(token(7, 0), True), True, TaskAction.PREPARE),
        (NONE, GroupTokens(token(6, 0), True), True, TaskAction.WAIT),
        (NONE, GroupTokens(None, True), True, TaskAction.WAIT),
        (NONE, GroupTokens(None, True), False, TaskAction.PREPARE),
    ],
)
def test_the_actions_of_a_task(own: GroupTokens, of_query: GroupTokens, may_wait: bool, action: TaskAction) -> None:
    assert choose(TASK, own, of_query, may_wait) is action


@pytest.mark.parametrize(("own", "of_query"), [(token(8, 1), token(7, 0)), (token(7, 1), token(8, 0))])
def test_a_checkpoint_older_than_the_topic_is_refused(own: Token, of_query: Token) -> None:
    with pytest.raises(DeliveryError, match="batch 7 of query q would be written, but batch 8 was written already"):
        choose(TASK, GroupTokens(own), GroupTokens(of_query), True)


def reports(*rows: Rows, there: Mapping[int, Rows]) -> list[Report]:
    """The reports of tasks that have `rows`, where an earlier attempt wrote those in `there`."""
    return [
        Report(
            TaskIdentity("q", "run2", 7, at),
            one,
            TaskAction.COMPARE if at in there else TaskAction.PREPARE,
            token(7, at, rows=there[at]) if at in there else None,
        )
        for at, one in enumerate(rows)
    ]


def test_an_identical_replay_is_accepted() -> None:
    identical = reports(ROWS, Rows(3, 4), there={0: ROWS})
    check_replay(identical, [token(6, 5)])
    with pytest.raises(DeliveryError, match="task 5"):
        check_replay(identical, [token(7, 5)])


@pytest.mark.parametrize(
    ("found", "beyond", "message"),
    [
        ([Rows(9, 0xABC)], [2], "task 0 wrote 10 rows before, and 9 now; task 2 wrote 10 rows, and does not exist"),
        (
            [Rows(10, 0xABD), ROWS],
            [],
            "task 0 wrote 10 rows before, and 10, others now. Nothing more of it was written",
        ),
        ([ROWS], [2], "task 2 wrote 10 rows, and does not exist now"),
        ([ROWS], range(2, 7), "(and 2 more)"),
    ],
)
def test_a_replay_that_differs_is_refused(found: list[Rows], beyond: list[int], message: str) -> None:
    with pytest.raises(DeliveryError) as refused:
        check_replay(reports(*found, there={0: ROWS}), [token(7, at) for at in beyond])
    assert message in str(refused.value)
    assert "deliveryGuarantee=at-least-once" in str(refused.value)

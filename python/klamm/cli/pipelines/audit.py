"""`klamm audit`: what a metadata log records about leaders, ISRs, brokers, topics, configs and the quorum."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from klamm.cli.framework.command_config import CommandConfig, client_keys
from klamm.cli.framework.options import Argument, Option
from klamm.cli.metadata.metadata_commands import Controller, Where
from klamm.cli.terminal.exits import Exit
from klamm.cli.terminal.output import AsJson, print_json, print_table, say
from klamm.cli.terminal.styled import errors
from klamm.client import ClientError
from klamm.config.sources import DEFAULT_DATA
from klamm.pipelines.errors import PipelineError
from klamm.spark.failures import reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from klamm.pipelines.audit import Audit
    from klamm.pipelines.audit.findings import Finding

_LIMIT = 10
_JSON_LIMIT = 1000


def audit(
    *,
    questions: Annotated[
        list[str] | None, Argument(metavar="[QUESTION]...", help="The questions to answer, see below; all by default.")
    ] = None,
    html: Annotated[Path | None, Option(metavar="FILE", help="Write a report with plots into this file.")] = None,
    sql: Annotated[
        str | None,
        Option(metavar="QUERY", help="Run a SQL query. The views are: records, each record type, and each question."),
    ] = None,
    limit: Annotated[
        int | None,
        Option("--limit", "-n", min=1, help="The number of rows of each answer; 10 by default, 1000 with --json."),
    ] = None,
    data: Where = DEFAULT_DATA,
    bootstrap_controller: Controller = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Audit a cluster's metadata log: what went wrong, by cause and time, and answers to questions.

    Reads the files of a klamm or Apache Kafka node, running or stopped, and
    changes nothing; or copies the log from the controllers of a running
    cluster. Large logs, and --sql, need Spark: pip install 'klamm\\[spark]'.

    Questions: incidents, elections, broker_states, leadership,
    unclean_elections, under_replicated, leaderless, isr_churn, isr_changes,
    topic_changes, config_changes.

    \b
    [bold]Examples[/bold]
      klamm audit --data server.properties
      klamm audit --html report.html
      klamm audit --bootstrap-controller localhost:9093 --html report.html
      klamm audit under_replicated leaderless --limit 50
      klamm audit config_changes --json
      klamm audit --sql "select type, count(*) from records group by type"
    """
    with _packages():
        from klamm.pipelines.audit import QUESTIONS, open_audit, summarize, write_report
        from klamm.pipelines.audit.report import check_target

    for question in questions or ():
        if question not in QUESTIONS:
            raise ClientError(f"there is no question '{question}': use one of {', '.join(QUESTIONS)}")
    if html is not None:
        check_target(html)
    source, client = (data, {}) if bootstrap_controller is None else (None, client_keys(command_config))
    with _steps() as step, _spark_errors():
        step("Reading the log")
        with open_audit(source, bootstrap_controller=bootstrap_controller, client=client, quiet=True) as opened:
            rows = limit or (_JSON_LIMIT if as_json else _LIMIT)
            answers: list[Finding] = []
            if sql is not None:
                step("Asking")
                _print_query(opened, sql, rows, step, as_json=as_json)
            elif html is None or questions or as_json:
                answers = _find(opened, questions, rows, step, every_column=as_json)
            summary = [] if questions or sql is not None else summarize(opened)
            report = None
            if html is not None:
                report = write_report(opened, html, on_step=step)
            step("")
            if sql is None:
                _print(opened, answers, summary, report, as_json=as_json)
            damage = opened.plan.damage
    for one in damage:
        say(f"damaged; the records before the damage are audited: {one}")
    if damage:
        raise Exit(1)


def _find(
    opened: Audit, questions: list[str] | None, rows: int, step: Callable[[str], None], *, every_column: bool
) -> list[Finding]:
    from klamm.pipelines.audit.findings import OVERVIEW, SUBJECTS, find

    found = []
    for question in questions or OVERVIEW:
        step(SUBJECTS[question].title)
        found.append(find(opened, question, rows, every_column=every_column))
    return found


def _print(opened: Audit, answers: list[Finding], summary: list[str], report: Path | None, *, as_json: bool) -> None:
    from klamm.pipelines.audit.findings import log_fields

    log = log_fields(opened)
    if as_json:
        by_question = {one.question: {"count": one.total, "rows": _objects(one.columns, one.rows)} for one in answers}
        path = None if report is None else str(report)
        print_json({"log": log, "summary": summary, "answers": by_question, "report": path})
        return
    begins = log["base_snapshot"] or f"offset {log['start_offset']}"
    say(f"{log['origin']}: from {begins} to offset {log['end_offset'] - 1}, {log['start_time']} to {log['end_time']}")
    for sentence in summary:
        print(sentence)
    if summary and answers:
        print()
    for number, one in enumerate(answers):
        if number:
            print()
        more = f", the first {len(one.rows)} of them" if one.total > len(one.rows) else ""
        print(f"{one.title}: {one.total}{more}")
        if one.rows:
            print_table(tuple(map(_head, one.columns)), one.rows)
    if report is not None:
        say(f"the report is in {report}")


def _objects(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _head(column: str) -> str:
    words = column.upper().replace("_", " ")
    return f"#{words}" if column.endswith(("_ms", "offset", "epoch", "shrinks", "expands")) else words


def _print_query(opened: Audit, sql: str, rows: int, step: Callable[[str], None], *, as_json: bool) -> None:
    opened.create_views(sql)
    found: DataFrame = opened.spark.sql(sql)
    if as_json:
        texts = found.limit(rows).toJSON().collect()
        step("")
        print_json([json.loads(str(text)) for text in texts])
        return
    taken = found.limit(rows).collect()
    step("")
    print_table(tuple(found.columns), [tuple(row) for row in taken])


@contextlib.contextmanager
def _packages() -> Iterator[None]:
    """Turn missing packages into a ClientError that names them."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "pyarrow":
            raise
        raise ClientError("this needs pyarrow: pip install 'klamm[arrow]'") from None


@contextlib.contextmanager
def _spark_errors() -> Iterator[None]:
    """Turn Spark's errors into one line: a query that cannot be parsed, a file that a task could not read."""
    try:
        yield
    except ClientError:
        raise
    except Exception as error:  # py4j and pyspark have no common base class
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        raise PipelineError(reason(error)) from None


@contextlib.contextmanager
def _steps() -> Iterator[Callable[[str], None]]:
    """Shows the current step as a line on stderr, on a terminal only; an empty text removes it."""
    if not errors.is_terminal:
        yield lambda _: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as progress:
        task = progress.add_task("")

        def step(text: str) -> None:
            progress.update(task, description=text, visible=bool(text))

        yield step

"""A cluster's metadata log as tables, with questions that are answered: `pip install "klamm[arrow]"`, `"klamm[spark]"`.

    from klamm.pipelines.audit import open_audit, summarize, write_report

    with open_audit("klamm-data") as audit:                # or bootstrap_controller="localhost:9093"
        print(*summarize(audit), sep="\n")
        print(audit.answer("incidents").to_pylist())      # Arrow; up to 16 MiB of log, without Spark
        audit.under_replicated().orderBy("duration_ms", ascending=False).show()
        audit.table("PartitionChangeRecord").where("leader = -1").show()
        audit.create_views()
        audit.spark.sql("select broker, sum(duration_ms) from broker_states where state = 'fenced' group by 1").show()
        write_report(audit, "report.html")

A task decodes 16 MiB of the log or of a snapshot, in the engine, to Arrow. What is damaged is named in
`audit.plan.damage`, and what came before it is there. Errors are a PipelineError that names the file and the way out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klamm.pipelines.audit.audit import Audit, open_audit
    from klamm.pipelines.audit.plan import Plan
    from klamm.pipelines.audit.questions import QUESTIONS
    from klamm.pipelines.audit.report import write_report
    from klamm.pipelines.audit.summary import summarize
    from klamm.pipelines.audit.tables import table_names

_HOMES = {
    "Audit": "audit",
    "Plan": "plan",
    "QUESTIONS": "questions",
    "open_audit": "audit",
    "summarize": "summary",
    "table_names": "tables",
    "write_report": "report",
}

__all__ = ["QUESTIONS", "Audit", "Plan", "open_audit", "summarize", "table_names", "write_report"]


def __getattr__(name: str) -> Any:
    """Imported when it is asked for: Spark's workers need `source` alone."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

"""The report: one self-contained HTML file."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from klamm.pipelines.audit.report.figures import gather
from klamm.pipelines.audit.report.page import page
from klamm.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from klamm.pipelines.audit.audit import Audit

ROWS = 20
"""Rows of each table; the number of the others is shown below it."""


def check_target(target: Path) -> None:
    """Check that a report can be written there before hours of work. Raises PipelineError."""
    if target.is_dir():
        raise PipelineError(f"{target} is a directory: name a file for the report")
    if not target.absolute().parent.is_dir():
        raise PipelineError(f"the report cannot be written to {target}: {target.parent} is no directory")


def write_report(
    audit: Audit, path: Path | str, *, rows: int = ROWS, on_step: Callable[[str], None] = lambda _: None
) -> Path:
    """Write the report of an audit, completely or not at all: it leaves no incomplete file. Raises PipelineError.

    `on_step` receives the name of the next step.
    """
    target = Path(path)
    check_target(target)
    text = page(gather(audit, rows, on_step))
    try:
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
            Path(name).chmod(0o644)
            Path(name).replace(target)
        except BaseException:  # also Ctrl-C: no unfinished file stays
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise PipelineError(f"the report cannot be written to {target}: {error.strerror or error}") from None
    return target


__all__ = ["check_target", "write_report"]

"""The sink for micro-batches: writes records with `klamm.spark`'s sink, and stores what is learned about offsets.

The tasks' answers come together in `commit`, which runs in a process of its own beside the driver. A file takes them to
the driver, because a writer has no other way to return data. (`mapInArrow` has one, but needs pandas.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from klamm.pipelines.mirror.selection import Naming
from klamm.pipelines.mirror.syncs import Run, Written
from klamm.pipelines.mirror.writing import write

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """The options of the tasks."""

    client: dict[str, str] = field(repr=False)
    """Keys of the target's client."""
    naming: Naming
    left_out: tuple[str, ...]
    """Topics of the source that are read but not written."""
    answers: str
    """The file for the reports of the tasks."""

    def as_options(self) -> dict[str, str]:
        """As Spark takes it along."""
        return {"settings": json.dumps(asdict(self))}

    @classmethod
    def of(cls, options: Any) -> SinkSettings:
        """The opposite."""
        fields = json.loads(options["settings"])
        return cls(fields["client"], Naming(**fields["naming"]), tuple(fields["left_out"]), fields["answers"])


class MirrorSink(DataSource):
    """`format("klamm-mirror")`: for the mirror only."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "klamm-mirror"

    def writer(self, schema: StructType, overwrite: bool) -> MirrorWriter:
        """Writes rows of the columns READ."""
        return MirrorWriter(SinkSettings.of(self.options))


@dataclass(frozen=True)
class WrittenOffsets(WriterCommitMessage):
    """The offsets that a task wrote."""

    written: list[Written]


class MirrorWriter(DataSourceArrowWriter):
    """Writes a micro-batch."""

    def __init__(self, settings: SinkSettings) -> None:
        self.settings = settings

    def write(self, iterator: Iterator[RecordBatch]) -> WrittenOffsets:
        """Write all rows of a task; they are acknowledged when this returns."""
        settings = self.settings
        return WrittenOffsets(write(settings.client, settings.naming, iterator, settings.left_out))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        rows = [asdict(written) for one in messages if isinstance(one, WrittenOffsets) for written in one.written]
        Path(self.settings.answers).write_text(json.dumps(rows))


def answers_of(text: str) -> list[Written]:
    """Parse a file of reports."""
    return [Written(**{**one, "runs": tuple(Run(*run) for run in one["runs"])}) for one in json.loads(text)]

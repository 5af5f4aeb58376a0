"""What Spark writes micro-batches with: records by `klamm.spark`'s sink, and what is learned of them to a file.

The tasks' answers come together in `commit`, which runs in a process of its own beside the driver. A file takes them to
the driver, because a writer has no other way to say something. (`mapInArrow` would have one, and wants pandas.)
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
    """What the tasks are told."""

    client: dict[str, str] = field(repr=False)
    """Keys of the target's client."""
    naming: Naming
    left_out: tuple[str, ...]
    """Topics of the source that are read and not written."""
    answers: str
    """The file that gets what was written."""

    def as_options(self) -> dict[str, str]:
        """As Spark takes it along."""
        return {"settings": json.dumps(asdict(self))}

    @classmethod
    def of(cls, options: Any) -> SinkSettings:
        """The opposite."""
        told = json.loads(options["settings"])
        return cls(told["client"], Naming(**told["naming"]), tuple(told["left_out"]), told["answers"])


class MirrorSink(DataSource):
    """`format("klamm-mirror")`: for the mirror itself."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "klamm-mirror"

    def writer(self, schema: StructType, overwrite: bool) -> MirrorWriter:
        """Writes rows of the columns READ."""
        return MirrorWriter(SinkSettings.of(self.options))


@dataclass(frozen=True)
class WrittenOffsets(WriterCommitMessage):
    """What a task wrote."""

    written: list[Written]


class MirrorWriter(DataSourceArrowWriter):
    """Writes a micro-batch."""

    def __init__(self, settings: SinkSettings) -> None:
        self.settings = settings

    def write(self, iterator: Iterator[RecordBatch]) -> WrittenOffsets:
        """All rows of a task, acknowledged when this returns."""
        settings = self.settings
        return WrittenOffsets(write(settings.client, settings.naming, iterator, settings.left_out))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        told = [asdict(written) for one in messages if isinstance(one, WrittenOffsets) for written in one.written]
        Path(self.settings.answers).write_text(json.dumps(told))


def answers_of(text: str) -> list[Written]:
    """What a file of answers says."""
    return [Written(**{**one, "runs": tuple(Run(*run) for run in one["runs"])}) for one in json.loads(text)]

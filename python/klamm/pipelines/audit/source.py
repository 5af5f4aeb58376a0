"""The data source for the tables: a task per part; for answers about a large log, a task per share of topics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from klamm.pipelines.audit.facts import Extent, Facts, Share
from klamm.pipelines.audit.parts import Part, from_text, to_text
from klamm.pipelines.audit.reading import RowFilter, rows_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT: Final = "klamm-metadata"
QUESTION_FORMAT: Final = "klamm-metadata-question"


def options_of(parts: Sequence[Part], wanted: RowFilter) -> dict[str, str]:
    """The options of a table."""
    return {"parts": to_text(parts), "wanted": json.dumps(wanted)}


class MetadataSource(DataSource):
    """A table of records. Its options come from `options_of`, for this process's own use."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """The schema of the wanted rows."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(_wanted(self.options["wanted"]).schema())

    def reader(self, schema: StructType) -> MetadataReader:
        """Reads the parts."""
        return MetadataReader(from_text(self.options["parts"]), _wanted(self.options["wanted"]))


def _wanted(text: str) -> RowFilter:
    return RowFilter(*json.loads(text))


class MetadataReader(DataSourceReader):
    """A task a part."""

    def __init__(self, parts: list[Part], wanted: RowFilter) -> None:
        self._parts = parts
        self._wanted = wanted

    def partitions(self) -> Sequence[InputPartition]:
        """The parts."""
        return [InputPartition(part) for part in self._parts]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one part. Spark asks for None where there is none."""
        if partition is not None:
            yield from rows_of(partition.value, self._wanted)


class DistributedQuestion(NamedTuple):
    """A question to a log that one process does not answer."""

    question: str
    base: tuple[Part, ...]
    log: tuple[Part, ...]
    extent: Extent
    shares: int

    def as_options(self) -> dict[str, str]:
        """As Spark takes it along."""
        return {
            "question": self.question,
            "base": to_text(self.base),
            "log": to_text(self.log),
            "extent": json.dumps(self.extent),
            "shares": str(self.shares),
        }


class QuestionSource(DataSource):
    """The answer to a question: each task reads the log and answers for its share of the topics."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return QUESTION_FORMAT

    def schema(self) -> StructType:
        """The columns of the answer."""
        from pyspark.sql.pandas.types import from_arrow_schema

        from klamm.pipelines.audit.questions import ASKED_OF_FACTS

        return from_arrow_schema(ASKED_OF_FACTS[self.options["question"]].schema)

    def reader(self, schema: StructType) -> QuestionReader:
        """Answers."""
        options = self.options
        base_end, withheld, end_time_ms = json.loads(options["extent"])
        extent = Extent(base_end, tuple(map(tuple, withheld)), end_time_ms)
        base, log = (tuple(from_text(options[name])) for name in ("base", "log"))
        return QuestionReader(DistributedQuestion(options["question"], base, log, extent, int(options["shares"])))


class QuestionReader(DataSourceReader):
    """A task a share."""

    def __init__(self, asked: DistributedQuestion) -> None:
        self._asked = asked

    def partitions(self) -> Sequence[InputPartition]:
        """The shares."""
        return [InputPartition(number) for number in range(self._asked.shares)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of a share."""
        from klamm.pipelines.audit.questions import ASKED_OF_FACTS

        if partition is not None:
            asked = self._asked
            facts = Facts(asked.base, asked.log, asked.extent, Share(partition.value, asked.shares))
            yield from ASKED_OF_FACTS[asked.question].answer(facts).to_batches()

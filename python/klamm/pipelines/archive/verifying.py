"""`verify`: reads every file of an archive back and compares it with the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from klamm.pipelines.archive.checksum import Digest
from klamm.pipelines.archive.manifest import DataFile, Manifest
from klamm.pipelines.archive.reading import batches_of
from klamm.pipelines.archive.running import NO_PROGRESS, Progress, rounds, run_tasks
from klamm.pipelines.archive.store import locate, read_manifest
from klamm.pipelines.errors import PipelineError
from klamm.pipelines.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES_PER_JOB: Final = 64
_SHOWN_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Verified:
    """Counts of what was read back; all of it equals the manifest."""

    topics: tuple[str, ...]
    files: int
    records: int
    bytes: int


def verify(
    folder: str | Path,
    *,
    topics: Sequence[str] | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    progress: Progress = NO_PROGRESS,
) -> Verified:
    """Read the archive, or some topics, back. PipelineError names every file that differs from the manifest."""
    root = Path(folder).absolute()
    manifest = read_manifest(root)
    names = names_in(manifest, topics, root)
    files = manifest.files(names)
    if files:
        with session("klamm verify", spark=spark, master=master, quiet=spark is None) as running:
            check_files(running, root, files, progress)
    return Verified(tuple(names), len(files), sum(file.records for file in files), sum(file.bytes for file in files))


def names_in(manifest: Manifest, topics: Sequence[str] | None, root: Path) -> list[str]:
    """The selected topics, all by default. Raises PipelineError for a topic that is not in the archive."""
    if unknown := sorted(set(topics or ()) - manifest.topics.keys()):
        here = ", ".join(sorted(manifest.topics)) or "none"
        raise PipelineError(f"archive '{root}' has no topic '{unknown[0]}'; there are: {here}")
    return sorted(topics or manifest.topics)


def check_files(spark: SparkSession, root: Path, files: Sequence[DataFile], progress: Progress) -> None:
    """Read each file in a task. PipelineError names the files that differ from the manifest."""
    total = sum(file.records for file in files)
    done = 0
    bad: list[str] = []
    progress(done, total)
    for some in rounds(files, FILES_PER_JOB):
        bad += filter(None, run_tasks(spark, CheckTask(str(root)), some))
        done += sum(file.records for file in some)
        progress(done, total)
    if bad:
        more = f"; and {len(bad) - _SHOWN_MAX} more" if len(bad) > _SHOWN_MAX else ""
        raise PipelineError("; ".join(bad[:_SHOWN_MAX]) + more + ". Take them from a copy of the archive")


@dataclass(frozen=True, slots=True)
class CheckTask:
    """Reads one file."""

    root: str

    def __call__(self, file: DataFile) -> str | None:
        """The difference, or None."""
        try:
            place = locate(Path(self.root), file.path)
            found = _read(place, file)
        except PipelineError as error:
            return str(error)
        except (pa.ArrowException, OSError, KeyError) as error:
            return f"'{Path(self.root) / file.path}' is damaged: {str(error).splitlines()[0]}"
        return None if found is None else f"'{place}' is damaged: {found}"


def _read(place: Path, file: DataFile) -> str | None:
    digest = Digest()
    last = -1
    for rows in batches_of(place):
        digest.update(rows)
        offsets = rows.column("offset")
        if rows.num_rows:
            is_ascending = pc.all(pc.greater(offsets[1:], offsets[:-1])).as_py() is not False
            if not is_ascending or offsets[0].as_py() <= last:
                return "its offsets do not ascend"
            last = offsets[-1].as_py()
    if digest.records != file.records:
        return f"it has {digest.records} records, the manifest says {file.records}"
    if digest.text() != file.checksum:
        return "the checksum of its records is not that of the manifest"
    return None

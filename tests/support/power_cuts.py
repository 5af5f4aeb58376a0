"""Power cuts for a whole node: file changes are recorded, and the state after a cut is built from the record.

The recorder (`file_changes.c`) is called between the node and the C library. The disk that loses unsynced writes is
that of the engine's own tests (`rust/log/src/crash.rs`), used through its example `power_cut`.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import pytest

from tests.support.foreign import BUILD, require, run
from tests.support.node_process import NodeProcess
from tests.support.workspace import programs

ROOT = Path(__file__).resolve().parents[2]
SYNC_US = 2000


class RecordedNode(NodeProcess):
    """`klamm start` whose changes of the data folder are recorded; a start after a kill continues the same record."""

    def __init__(self, data: Path, *, overrides: Mapping[str, str]) -> None:
        self.changes = data.parent / f"{data.name}.changes"
        super().__init__(
            data,
            overrides=overrides,
            environment={
                "LD_PRELOAD": str(recorder()),
                "KLAMM_CHANGES_OF": str(data),
                "KLAMM_CHANGES_TO": str(self.changes),
                "KLAMM_CHANGES_SYNC_US": str(SYNC_US),
            },
        )

    @property
    def position(self) -> int:
        """The length of the record: acknowledgements received by now must survive a cut at this position or later."""
        return self.changes.stat().st_size

    def kill(self) -> None:
        """Kill it between two changes: an unrecorded change would be missing from everything recorded after it."""
        with self.changes.open("rb") as record:
            fcntl.flock(record, fcntl.LOCK_EX)
            super().kill()


def recorder() -> Path:
    """The recording library, built when it is missing or out of date."""
    if sys.platform != "linux":
        pytest.skip("the recorder of file changes is for Linux")
    require("cc")
    source, library = ROOT / "tests" / "support" / "file_changes.c", BUILD / "file_changes.so"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        library.parent.mkdir(parents=True, exist_ok=True)
        beside = library.with_suffix(f".{id(library)}.so")
        run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(beside), str(source), "-ldl"])
        beside.replace(library)
    return library


class PowerCuts:
    """Creates folders as a power cut leaves them. Cuts must be made in ascending order."""

    def __init__(self, node: RecordedNode) -> None:
        self._process = subprocess.Popen(
            [str(programs() / "examples" / "power_cut"), str(node.data), str(node.changes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def cut(self, position: int, seed: int, target: Path) -> None:
        """Cut the power when the record is `position` bytes long; the resulting files are written to `target`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(position, seed, target, file=self._process.stdin, flush=True)
        assert self._process.stdout.readline(), "the program that cuts the power ended"

    def __enter__(self) -> PowerCuts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.communicate()

"""A small disk that really fills up: a tmpfs, mounted as root or in a user and mount namespace of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.foreign import give_up

INSIDE = "KLAMM_TEST_IN_NAMESPACE"
PAGE = b"x" * 4096


def can_mount() -> bool:
    """Whether this process may mount: root may, unless a container forbids it."""
    return _succeeds("mount", "--version") and _succeeds("unshare", "--mount", "true")


def with_mounts(request: pytest.FixtureRequest) -> bool:
    """Whether the test continues in this process. If not, it has run in its own namespace, or has been skipped."""
    if can_mount():
        return True
    if not _succeeds("unshare", "--user", "--map-root-user", "--mount", "true"):
        give_up("neither root nor a user namespace: nothing can be mounted here")
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:xdist",
    ]
    done = subprocess.run(
        [*command, request.node.nodeid],
        cwd=request.config.rootpath,
        env=os.environ | {INSIDE: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return False


def _succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


class SmallDisk:
    """A mounted disk of a few MiB."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Use up all free space."""
        file = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            while os.write(file, PAGE):
                pass
        except OSError:
            pass
        finally:
            os.close(file)

    def free(self) -> None:
        """Free it again."""
        self._ballast.unlink()


@contextmanager
def small_disk(path: Path, mebibytes: int) -> Iterator[SmallDisk]:
    """Mount one for the block."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(path)], check=True)
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)

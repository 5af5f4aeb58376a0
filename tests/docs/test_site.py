"""The documentation is built without a warning: every link and every page of the navigation exists."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import browser
from tests.docs.pages import ROOT
from tests.support.foreign import give_up, require_package

QUIET = {"NO_MKDOCS_2_WARNING": "1"}


def build(folder: Path) -> Path:
    """Build the site into that folder."""
    require_package("mkdocs", "material")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | QUIET,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    site = build(tmp_path / "site")
    assert (site / "index.html").exists()
    assert (site / "architecture.html").exists()


@pytest.mark.slow
def test_chromium_finds_no_problem(tmp_path: Path) -> None:
    if not any(map(shutil.which, browser.PROGRAMS)):
        give_up(f"none of {', '.join(browser.PROGRAMS)} is installed")
    assert browser.check(build(tmp_path / "site")) == []

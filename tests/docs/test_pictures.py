"""The pictures that are drawn from the code are up to date. (For the charts: `tests/unit/benches/test_report.py`.)"""

from __future__ import annotations

import subprocess
import sys

from tests.docs.pages import ROOT


def test_the_rooms_are_those_of_the_code() -> None:
    """After a change of packages or crates: `python tools/draw_rooms.py`."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "draw_rooms.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

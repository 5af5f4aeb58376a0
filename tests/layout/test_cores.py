"""Cores have no clock, file, thread or lock of their own."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KLAMM = ROOT / "python" / "klamm"

ARMS_A_TIMER = re.compile(r"\.call_later\(|\.call_at\(|loop(\(\))?\.time\(")
DRIVING, SIMULATOR = KLAMM / "driving", KLAMM / "testing" / "simulator"


def test_timers_are_armed_and_a_loops_clock_is_read_in_one_place() -> None:
    found = {
        str(file.relative_to(KLAMM))
        for file in KLAMM.rglob("*.py")
        if not {DRIVING, SIMULATOR} & set(file.parents) and ARMS_A_TIMER.search(file.read_text())
    }
    assert not found, "use LoopClock, DeadlineTimer or Deadlines of klamm.driving"


def test_the_core_of_a_partition_has_no_clock_file_thread_or_lock() -> None:
    # A reference count is not a lock.
    modules = r"std::(time|fs|io|sync(?!::Arc;)|thread|cell)|klamm_log|parking_lot|arc_swap|tokio"
    outside = re.compile(rf"\b({modules})\b")
    cores = ROOT / "rust/replica/src/core", ROOT / "rust/share/src"
    assert all(core.is_dir() for core in cores)
    files = sorted(file for core in cores for file in core.glob("*.rs"))
    used = [f"{file.name}: {match[0]}" for file in files for match in outside.finditer(file.read_text())]
    assert not used, "pass what the core needs as an argument of the event"

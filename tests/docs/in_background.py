"""Starts a command, waits until it has printed a line, leaves it running, and appends its process id to $PAGE_PIDS."""

import os
import subprocess
import sys
import time
from pathlib import Path

SECONDS_MAX = 60.0

pids = Path(os.environ["PAGE_PIDS"])
output = pids.with_name(f"output-{time.monotonic_ns()}")
with output.open("wb") as file:
    process = subprocess.Popen(sys.argv[1:], stdout=file, stderr=file, stdin=subprocess.DEVNULL)
with pids.open("a") as file_of_pids:
    file_of_pids.write(f"{process.pid}\n")
deadline = time.monotonic() + SECONDS_MAX
while not output.stat().st_size and process.poll() is None and time.monotonic() < deadline:
    time.sleep(0.02)
if process.poll() is not None or not output.stat().st_size:
    sys.exit(f"{sys.argv[1:]} ended with {process.poll()}: {output.read_text()}")

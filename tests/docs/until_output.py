"""Runs a command, sends it Ctrl-C shortly after its first output, and fails unless that ends it cleanly."""

import signal
import subprocess
import sys
import time

SECONDS_MAX = 60.0

signal.signal(signal.SIGINT, signal.default_int_handler)
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
assert process.stdout is not None
print(process.stdout.readline(), end="", flush=True)
time.sleep(0.2)
process.send_signal(signal.SIGINT)
print(process.communicate(timeout=SECONDS_MAX)[0], end="")
# shells report 130 for a command that Ctrl-C has ended
sys.exit(process.returncode if process.returncode not in (0, 130) else 0)

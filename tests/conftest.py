"""Settings for all tests: results do not depend on the load of the machine or on the parent process."""

from __future__ import annotations

import os
import signal
import sys

from hypothesis import HealthCheck, settings

settings.register_profile("klamm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("klamm")

# A shell starts `&` commands with SIGINT ignored, and commands that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Container images often set this. Each of the thousands of processes of the tests would then compile what it imports,
# which is half of the CPU time of a node that lives briefly.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

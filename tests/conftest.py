"""Settings for all tests: results do not depend on the load of the machine or on the parent process."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("klamm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("klamm")

# A shell starts `&` commands with SIGINT ignored, and commands that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

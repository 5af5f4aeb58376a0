"""What holds for all tests: neither how busy the machine is nor who started them decides anything."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("klamm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("klamm")

# A shell lets what it starts with `&` ignore Ctrl-C, and the commands that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

"""What holds for all tests: how busy the machine is decides nothing."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("klamm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("klamm")

"""What holds for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No test asserts a duration: an example that takes long was one on a loaded machine.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

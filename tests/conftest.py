"""What holds for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

# No test asserts a duration: an example that takes long was one on a loaded machine. Without `explain`: what that does
# to an example that fails took minutes there, and the limit of the test ended the whole run before it was shown.
settings.register_profile(
    "untimed",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
settings.load_profile("untimed")

"""What holds for all tests: none may depend on how fast the machine is, nor on luck.

Hypothesis tries the same examples each time; `pytest --hypothesis-profile=search` looks for others.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "any machine",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", settings.get_profile("any machine"), derandomize=False)
settings.load_profile("any machine")

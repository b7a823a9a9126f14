"""What holds for all tests: none may depend on how fast the machine is, nor on luck.

Hypothesis tries the same examples each time; `pytest --hypothesis-profile=search` looks for others.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.kit.needs import ResourceWatch, needs
from tests.kit.stores import stores

__all__ = ["stores"]

settings.register_profile(
    "any machine",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", settings.get_profile("any machine"), derandomize=False)
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    """Watch over the markers `process` and `server`."""
    config.pluginmanager.register(ResourceWatch())


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with what it needs from the machine; put modules with slow ones first.

    Of modules that run beside one another a long one that begins last is what all wait for.
    """
    for item in items:
        if isinstance(item, pytest.Function):
            for name in sorted(needs(item)):
                item.add_marker(name)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)

"""Configuration of all tests: results must not depend on the machine's speed or on chance.

Hypothesis is derandomised and tries the same examples each time;
`pytest --hypothesis-profile=search` tries new ones.
"""

from __future__ import annotations

import platform

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
    """Register the plugin that enforces the markers `process` and `server`."""
    # It runs `uname -p` once per process. The openai SDK asks for it with its first request, which
    # would make whichever test comes first start a process.
    platform.platform()
    config.pluginmanager.register(ResourceWatch())


@pytest.hookimpl(tryfirst=True)  # before `-m` deselects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the resources it needs, and sort modules with slow tests first.

    Modules run in parallel, so a slow one that started last would prolong the whole run.
    """
    for item in items:
        if isinstance(item, pytest.Function):
            for name in sorted(needs(item)):
                item.add_marker(name)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)

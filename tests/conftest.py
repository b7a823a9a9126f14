"""Configuration of all tests: results must not depend on the machine's speed or on chance.

Hypothesis is derandomised and tries the same examples each time;
`pytest --hypothesis-profile=search` tries new ones.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.kit.needs import ResourceWatch, needs
from tests.kit.stores import stores

__all__ = ["stores"]

# Modules of fixtures, which some tests import before others name them as plugins.
for each in ("embedder", "engine", "scripted_server"):
    pytest.register_assert_rewrite(f"tests.kit.{each}")

settings.register_profile(
    "any machine", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
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

    Modules run in parallel, so a slow one that started last would prolong the whole run: those with
    a longer `timeout` of their own come before the others. Those of one folder are spread among the
    others: several clusters or engines at once would starve each other.
    """
    for item in items:
        if isinstance(item, pytest.Function):
            for name in sorted(needs(item)):
                item.add_marker(name)
    longest: dict[Path, float] = {}  # by module with slow tests, in seconds
    for item in items:
        timeout = item.get_closest_marker("timeout")
        if timeout or item.get_closest_marker("slow"):
            longest[item.path] = max(longest.get(item.path, 0), timeout.args[0] if timeout else 0)
    slow = sorted(_spread(longest), key=lambda path: -longest[path])
    order = {path: at for at, path in enumerate(slow)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


def _spread(modules: Iterable[Path]) -> Sequence[Path]:
    """Sort modules so that those of each folder have equal distances."""
    folders: dict[Path, list[Path]] = {}
    for module in sorted(modules):
        folders.setdefault(module.parent, []).append(module)
    places = [
        ((at + 0.5) / len(inside), module)
        for inside in folders.values()
        for at, module in enumerate(inside)
    ]
    return [module for _, module in sorted(places)]

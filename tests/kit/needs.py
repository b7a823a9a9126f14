"""Markers that say what a test needs from the machine, read from the names that its code uses.

A test that runs a real IRC server does so through `tests.kit.ircd`, however many helpers of its own
or of the kit stand between. `needs` follows the global names that the test, its fixtures and its
parameters reach inside `tests`, and stops at those of `KIT`. What product code starts by itself is
out of its sight: such a test is marked by hand, and `ResourceWatch` fails it if it is not.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from types import CodeType, FunctionType, ModuleType

import pytest

KIT = {
    "tests.kit.ircd": {"ircd", "process", "server"},
    "tests.kit.znc": {"ircd", "process", "server"},
    "tests.kit.bip": {"ircd", "process", "server"},
    "tests.kit.engine": {"engine", "process", "server"},
    "tests.kit.browser": {"browser", "process"},
    "tests.kit.agent_server": {"server"},
    "tests.kit.irc_script": {"server"},
    "tests.kit.ports": {"server"},
    "tests.kit.postgres": {"postgres", "process"},
    "tests.kit.prosody": {"process", "server"},
    "tests.kit.ray_cluster": {"ray", "process", "server"},
    "tests.kit.serving": {"server"},
    "tests.kit.web_site": {"server"},
}
_NAMES = {
    "create_subprocess_exec": "process",
    "create_subprocess_shell": "process",
    "Popen": "process",
    "multiprocessing": "process",
    "start_server": "server",
    "bind": "server",
}
_AUDITED = {
    "subprocess.Popen": "process",
    "os.fork": "process",
    "os.forkpty": "process",
    "os.posix_spawn": "process",
    "socket.bind": "server",
}


def needs(item: pytest.Function) -> set[str]:
    """Return the markers of pyproject.toml that a collected test is to have."""
    fixtures = (each[-1].func for each in item._fixtureinfo.name2fixturedefs.values())
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    used = (item.function, *fixtures, *filter(callable, given))
    return set().union(*map(_needs, used))


@cache
def _needs(start: object) -> frozenset[str]:
    """Return the markers for what `start` reaches."""
    found: set[str] = set()
    seen: set[int] = set()
    values = [start]
    while values:
        value = values.pop()
        if id(value) in seen or isinstance(value, str | bytes | int):
            continue
        seen.add(id(value))
        markers = KIT.get(getattr(value, "__module__", None) or "")
        if markers:
            found |= markers
        else:
            values += _reached(value, found)
    return frozenset(found)


def _reached(value: object, found: set[str]) -> Iterator[object]:
    """Yield what `value` uses inside `tests`; add to `found` what it starts itself."""
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, tuple | list | set | frozenset):
        yield from value
    elif not (getattr(value, "__module__", None) or "").startswith("tests."):
        return
    elif isinstance(value, type):
        yield from (*vars(value).values(), *value.__bases__)
    elif isinstance(value, property):
        yield value.fget
    else:
        function = inspect.unwrap(getattr(value, "__func__", value))  # type: ignore[arg-type]
        if hasattr(function, "hypothesis"):  # what `given` has wrapped
            function = function.hypothesis.inner_test
        if isinstance(function, FunctionType):
            names = set(_names(function.__code__))
            found |= {_NAMES[name] for name in names & _NAMES.keys()}
            if {"subprocess", "run"} <= names:
                found.add("process")
            yield from _globals(function.__globals__, names)
        else:
            yield type(value)


def _globals(scope: Mapping[str, object], names: set[str]) -> Iterator[object]:
    for name in names & scope.keys():
        value = scope[name]
        if not isinstance(value, ModuleType):
            yield value
        elif value.__name__.startswith("tests."):  # `from tests.kit import ircd`
            yield from (vars(value)[each] for each in names & vars(value).keys())


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


class ResourceWatch:
    """A plugin that fails a test which starts a child process or a server without the marker."""

    def __init__(self) -> None:
        self._running: pytest.Item | None = None
        self._missing: list[str] = []
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in _AUDITED or self._running is None:
            return
        marker = _AUDITED[event]
        if self._running.get_closest_marker(marker) is None:
            self._missing.append(f"{event} {arguments[:2]!r} without the marker `{marker}`")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Run the test, and look at what it started."""
        self._missing.clear()
        self._running = item
        try:
            result = yield
        finally:
            self._running = None
        if self._missing:
            pytest.fail("\n".join(self._missing))
        return result

"""Pytest markers for the resources that a test needs, derived from the names that its code uses.

A test that runs a real IRC server uses `tests.kit.ircd`, directly or through other helpers. `needs`
follows the global names that are reachable inside `tests` from the test, its fixtures and its
parameters, and stops at the modules of `KIT`. It cannot see processes and servers that product code
starts: such tests are marked by hand, and `ResourceWatch` fails them if the marker is missing.
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
    "tests.kit.bouncers": {"ircd", "process", "server"},
    "tests.kit.embedder": {"process"},
    "tests.kit.engine": {"engine", "process", "server"},
    "tests.kit.browser": {"browser", "process"},
    "tests.kit.agent_server": {"server"},
    "tests.kit.irc_script": {"server"},
    "tests.kit.ports": {"server"},
    "tests.kit.postgres": {"postgres", "process"},
    "tests.kit.prosody": {"process", "server"},
    "tests.kit.ray_cluster": {"ray", "process", "server"},
    "tests.kit.serving": {"server"},
    "tests.kit.synapse": {"process", "server"},
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
    """Return the markers, of those in pyproject.toml, for a collected test."""
    fixtures = (each[-1].func for each in item._fixtureinfo.name2fixturedefs.values())
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    used = (item.function, *fixtures, *filter(callable, given))
    return set().union(*map(_needs, used))


@cache
def _needs(start: object) -> frozenset[str]:
    """Return the markers for everything reachable from `start`."""
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
    """Yield the values that `value` uses inside `tests`.

    Adds to `found` the markers for what the code of `value` itself starts.
    """
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
        if hasattr(function, "hypothesis"):  # decorated with `given`
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
    """Plugin that fails a test that starts a child process or server without the marker.

    Uses an audit hook, which cannot be removed, so it only acts while a test runs.
    """

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
        """Run the test; fail it if it started something without the marker."""
        self._missing.clear()
        self._running = item
        try:
            result = yield
        finally:
            self._running = None
        if self._missing:
            pytest.fail("\n".join(self._missing))
        return result

"""Readiness checks of the started processes, and waiting for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx2

from harnesses.core.launcher.plan import IrcEndpoint
from harnesses.core.tendril.status import ProcessState, report

Check = Callable[[], Awaitable[str | None]]
"""Returns None when all is well, else for people what is missing."""

_POLL = 0.05  # seconds
_SLOW = 2.0  # seconds until a server that says nothing counts as away


async def wait_until_ready(
    checks: Mapping[str, Check], say: Callable[[str], None], every: float = 10.0
) -> None:
    """Return when every check says at the same time that all is well.

    `say` is told what is awaited, `every` so many seconds.
    """
    loop = asyncio.get_running_loop()
    next_word = loop.time() + every
    while missing := await _missing(checks):
        if loop.time() >= next_word:
            say("waiting for " + "; ".join(missing))
            next_word += every
        await asyncio.sleep(_POLL)


async def _missing(checks: Mapping[str, Check]) -> list[str]:
    found = [(name, await check()) for name, check in checks.items()]
    return [f"{name}: {what}" for name, what in found if what]


def server_ready(http: httpx2.AsyncClient, url: str) -> Check:
    """Check that the agent server at `url` can produce a token."""

    async def check() -> str | None:
        try:
            response = await http.get(f"{url}/ready", timeout=_SLOW)
        except httpx2.TransportError:
            return f"nothing answers at {url}"
        if response.status_code == 200:
            return None
        return f"no model answers yet (HTTP {response.status_code} from {url}/ready)"

    return check


def irc_accepts(endpoint: IrcEndpoint) -> Check:
    """Check that the IRC server accepts connections."""

    async def check() -> str | None:
        try:
            async with asyncio.timeout(_SLOW):
                _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        except (OSError, TimeoutError):
            return f"nothing answers at {endpoint.host} port {endpoint.port}"
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return None

    return check


def tendril_ready(data: Path, name: str, pids: Mapping[str, int]) -> Check:
    """Check the status file of a tendril, if it is from the process that runs now."""

    async def check() -> str | None:
        said = report(data, name)
        if said is None or said.pid != pids.get(name):
            return "it is starting"
        if said.state is ProcessState.READY:
            return None
        return said.detail or f"it is {said.state}"

    return check


async def unreachable(http: httpx2.AsyncClient, upstream: Sequence[str]) -> list[str]:
    """Return the URLs that do not answer."""
    away = []
    for url in upstream:
        try:
            await http.get(f"{url}/v1/models", timeout=_SLOW)
        except httpx2.TransportError:
            away.append(url)
    return away

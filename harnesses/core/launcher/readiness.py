"""Readiness checks of the started processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import httpx2

from harnesses.core.launcher.plan import IrcEndpoint
from harnesses.core.tendril.status import STANDBY, ProcessState, report
from llm.client.response import MISCONFIGURED

Check = Callable[[], Awaitable[str | None]]
"""Returns None if all is well, or else a text for people that says what is missing."""

_POLL_INTERVAL = 0.05  # seconds between two rounds of checks
_REQUEST_TIMEOUT = 2.0  # request timeout in seconds
_FIRST_TOKEN_TIMEOUT = 120.0  # timeout in seconds of the first token, on a slow and busy machine
_RETRY_INTERVAL = 2.0  # seconds between two attempts to get a first token
_MAX_REASON_CHARS = 300  # characters

PROBE_SESSION = "first-token"
"""The session name of the request that probes whether the model answers."""

REFUSED = (401, 403)
KEY_HINT = (
    "the agent server refuses its key; make one with `terrarium keys create NAME` and set it as "
    "AGENT_API_KEY ([agent] api_key)"
)


async def wait_until_ready(
    checks: Mapping[str, Check], say: Callable[[str], None], every: float = 10.0
) -> None:
    """Wait until all checks pass in the same round.

    Every `every` seconds `say` receives a line with what is missing.
    """
    loop = asyncio.get_running_loop()
    next_word = loop.time() + every
    while missing := await _missing(checks):
        if loop.time() >= next_word:
            say("waiting for " + "; ".join(missing))
            next_word += every
        await asyncio.sleep(_POLL_INTERVAL)


async def _missing(checks: Mapping[str, Check]) -> list[str]:
    found = [(name, await check()) for name, check in checks.items()]
    return [f"{name}: {what}" for name, what in found if what]


def server_ready(http: httpx2.AsyncClient, url: str) -> Check:
    """Return a check that the agent server at `url` is ready: that a model of it answers."""

    async def check() -> str | None:
        try:
            response = await http.get(f"{url}/ready", timeout=_REQUEST_TIMEOUT)
        except httpx2.TransportError:
            return f"nothing answers at {url}"
        if response.status_code == 200:
            return None
        if MISCONFIGURED in response.text:
            return f"the model cannot be used: {_reason(response)}"
        return f"no model answers yet (HTTP {response.status_code} from {url}/ready)"

    return check


def lets_in(http: httpx2.AsyncClient, url: str, key: str | None) -> Check:
    """Return a check that the agent server at `url` accepts a key. It sends no more requests after
    the first success."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    passed = False

    async def check() -> str | None:
        nonlocal passed
        if passed:
            return None
        try:
            response = await http.get(f"{url}/v1/models", headers=headers, timeout=_REQUEST_TIMEOUT)
        except httpx2.TransportError:
            return f"nothing answers at {url}"
        if response.status_code in REFUSED:
            return KEY_HINT
        passed = response.is_success
        return None if passed else f"{url}/v1/models answers with HTTP {response.status_code}"

    return check


async def ask_for_token(
    http: httpx2.AsyncClient, url: str, key: str | None, model: str
) -> str | None:
    """Request one token from the model; return None on success, or else the reason for people."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Hello."}],
        "max_tokens": 1,
    }
    headers = {"x-session-id": PROBE_SESSION}
    if key:
        headers["authorization"] = f"Bearer {key}"
    try:
        response = await http.post(
            f"{url}/v1/chat/completions", json=body, headers=headers, timeout=_FIRST_TOKEN_TIMEOUT
        )
    except httpx2.TimeoutException:
        return f"the model has been silent for {_FIRST_TOKEN_TIMEOUT:g} s"
    except httpx2.TransportError:
        return f"nothing answers at {url}"
    if response.is_success:
        return None
    if response.status_code in REFUSED:
        return KEY_HINT
    return f"the model does not answer: {_reason(response)}"


def _reason(response: httpx2.Response) -> str:
    try:
        return str(response.json()["error"]["message"])[:_MAX_REASON_CHARS]
    except (ValueError, KeyError, TypeError):
        return f"HTTP {response.status_code}"


class ModelAnswers:
    """A check that the model really generates a token.

    `ask` calls `ask_for_token`. It runs in the background, because a first token may take minutes,
    and is repeated after a pause until it succeeds. Use it as a context manager, and call it as a
    `Check`.
    """

    def __init__(self, ask: Check) -> None:
        self._ask = ask
        self._missing: str | None = "the model is asked for a first token"
        self._task: asyncio.Task[None] | None = None

    async def __call__(self) -> str | None:
        """Return None once a token has arrived, or else what is missing; never waits."""
        if self._missing and self._task is None:
            self._task = asyncio.create_task(self._try())
        return self._missing

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _try(self) -> None:
        while True:
            self._missing = await self._ask()
            if self._missing is None:
                return
            await asyncio.sleep(_RETRY_INTERVAL)


def irc_accepts(endpoint: IrcEndpoint) -> Check:
    """Return a check that the IRC server accepts connections."""

    async def check() -> str | None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT):
                _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        except (OSError, TimeoutError):
            return f"nothing answers at {endpoint.host} port {endpoint.port}"
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return None

    return check


def tendril_ready(data: Path, name: str, pids: Mapping[str, int]) -> Check:
    """Return a check that a tendril is ready, by the status file of its current process.

    `pids` holds the ids of the running processes, by name.
    """

    async def check() -> str | None:
        # A status file of an earlier process may still be there, and say "ready".
        found = (report(data, name), report(data, name + STANDBY))
        said = next((each for each in found if each and each.pid == pids.get(name)), None)
        if said is None:
            return "it is starting"
        if said.trouble or said.state is not ProcessState.READY:
            return said.trouble or said.detail or f"it is {said.state}"
        return None

    return check


async def unreachable(http: httpx2.AsyncClient, upstream: Sequence[str]) -> list[str]:
    """Return those of the `upstream` URLs that do not answer; any HTTP status is an answer."""
    away = []
    for url in upstream:
        try:
            await http.get(f"{url}/v1/models", timeout=_REQUEST_TIMEOUT)
        except httpx2.TransportError:
            away.append(url)
    return away

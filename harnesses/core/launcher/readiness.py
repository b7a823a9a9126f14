"""Readiness of the started processes, and a line about the model that answers.

Each check returns None if all is well, or else a text for people that says what is missing.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx2
from pydantic import ValidationError

from harnesses.core.launcher.plan import IrcEndpoint
from harnesses.core.tendril.status import STANDBY_SUFFIX, ProcessState, read_report
from llm.client.profile import ModelCard
from llm.client.response import MISCONFIGURED
from llm.client.settings import AgentSettings

Check = Callable[[], Awaitable[str | None]]

_POLL_INTERVAL = 0.05  # seconds between two rounds of checks
_REPORT_INTERVAL = 10.0  # seconds between two lines with what is missing
_REQUEST_TIMEOUT = 2.0  # request timeout in seconds
_FIRST_TOKEN_TIMEOUT = 120.0  # timeout in seconds of the first token, on a slow and busy machine
_MAX_REASON_CHARS = 300  # characters
_CARD_TIMEOUT = 3.0  # seconds
_CARD_INTERVAL = 0.1  # seconds between requests for the model card
_QUANTISED = re.compile(r"[.-](I?Q\d\w*|B?F16|F32)$", re.IGNORECASE)  # suffix of a GGUF file name
_TINY_PARAMETERS = 700_000_000  # parameters; smaller models paraphrase poorly

PROBE_SESSION = "first-token"
"""The session name of the request that probes whether the model answers."""

_REFUSED = (401, 403)
_KEY_HINT = (
    "the agent server rejects its key; make one with `terrarium keys create NAME` and set it as "
    "AGENT_API_KEY ([agent] api_key)"
)


async def wait_until_ready(
    checks: Mapping[str, Check],
    say: Callable[[str], None],
    *,
    pause: float = _POLL_INTERVAL,
    every: float = _REPORT_INTERVAL,
) -> None:
    """Wait until all checks pass in the same round, with a `pause` between rounds.

    Every `every` seconds `say` receives a line with what is missing.
    """
    missing: dict[str, str | None] = dict.fromkeys(checks, "no answer yet")

    async def tell() -> None:
        while True:
            await asyncio.sleep(every)
            if said := [f"{name}: {what}" for name, what in missing.items() if what]:
                say("waiting for " + "; ".join(said))

    async with asyncio.TaskGroup() as tasks:
        telling = tasks.create_task(tell())  # a check may take minutes
        while True:
            for name, check in checks.items():
                missing[name] = await check()
            if not any(missing.values()):
                break
            await asyncio.sleep(pause)
        telling.cancel()


async def server_ready(http: httpx2.AsyncClient, url: str) -> str | None:
    """Check that the agent server at `url` is ready: that a model of it answers."""
    try:
        response = await http.get(f"{url}/ready", timeout=_REQUEST_TIMEOUT)
    except httpx2.TransportError:
        return f"nothing answers at {url}"
    if response.status_code == 200:
        return None
    if MISCONFIGURED in response.text:
        return f"the model cannot be used: {_reason(response)}"
    return f"no model answers yet (HTTP {response.status_code} from {url}/ready)"


async def lets_in(http: httpx2.AsyncClient, url: str, key: str | None) -> str | None:
    """Check that the agent server at `url` accepts a key."""
    try:
        headers = _authorization(key)
        response = await http.get(f"{url}/v1/models", headers=headers, timeout=_REQUEST_TIMEOUT)
    except httpx2.TransportError:
        return f"nothing answers at {url}"
    if response.status_code in _REFUSED:
        return _KEY_HINT
    if response.is_success:
        return None
    return f"{url}/v1/models answers with HTTP {response.status_code}"


async def ask_for_token(
    http: httpx2.AsyncClient, url: str, key: str | None, model: str
) -> str | None:
    """Check that the model generates a token, which may take minutes."""
    messages = [{"role": "user", "content": "Hello."}]
    try:
        response = await http.post(
            f"{url}/v1/chat/completions",
            json={"model": model, "messages": messages, "max_tokens": 1},
            headers={"x-session-id": PROBE_SESSION} | _authorization(key),
            timeout=_FIRST_TOKEN_TIMEOUT,
        )
    except httpx2.TimeoutException:
        return f"the model has been silent for {_FIRST_TOKEN_TIMEOUT:g} s"
    except httpx2.TransportError:
        return f"nothing answers at {url}"
    if response.is_success:
        return None
    if response.status_code in _REFUSED:
        return _KEY_HINT
    return f"the model does not answer: {_reason(response)}"


async def irc_accepts(endpoint: IrcEndpoint) -> str | None:
    """Check that the IRC server accepts connections."""
    try:
        async with asyncio.timeout(_REQUEST_TIMEOUT):
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    except (OSError, TimeoutError):
        return f"nothing answers at {endpoint.host} port {endpoint.port}"
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return None


async def tendril_ready(data: Path, name: str, pids: Mapping[str, int]) -> str | None:
    """Check that a tendril is ready, by the status file of its current process; `pids` holds the
    ids of the running processes, by name."""
    # A status file of an earlier process may still be there, and say "ready".
    found = (read_report(data, name), read_report(data, name + STANDBY_SUFFIX))
    said = next((each for each in found if each and each.pid == pids.get(name)), None)
    if said is None:
        return "it is starting"
    if said.trouble or said.state is not ProcessState.READY:
        return said.trouble or said.detail or f"it is {said.state}"
    return None


async def unreachable(http: httpx2.AsyncClient, upstream: Sequence[str]) -> list[str]:
    """Return those of the `upstream` URLs that do not answer; any HTTP status is an answer."""
    away = []
    for url in upstream:
        try:
            await http.get(f"{url}/v1/models", timeout=_REQUEST_TIMEOUT)
        except httpx2.TransportError:
            away.append(url)
    return away


def _authorization(key: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def _reason(response: httpx2.Response) -> str:
    try:
        return str(response.json()["error"]["message"])[:_MAX_REASON_CHARS]
    except (ValueError, KeyError, TypeError):
        return f"HTTP {response.status_code}"


async def model_line(http: httpx2.AsyncClient, url: str, agent: AgentSettings) -> str | None:
    """Return a description of the model of the agent server at `url`, None if it does not answer.

    A server that has just started may not know its weights yet; it is polled for a few seconds.
    """
    card: ModelCard | None = None
    address, headers = f"{url}/v1/models/{agent.model}", _authorization(agent.key)
    with suppress(TimeoutError, httpx2.HTTPError, ValidationError):
        async with asyncio.timeout(_CARD_TIMEOUT):
            while True:
                answer = await http.get(address, headers=headers, timeout=_REQUEST_TIMEOUT)
                if not answer.is_success:
                    return None
                card = ModelCard.model_validate_json(answer.content)
                # Without weights, the server does not know yet which are loaded.
                if "weights" not in card.model_fields_set or card.weights is not None:
                    break
                await asyncio.sleep(_CARD_INTERVAL)
    return describe_model(card) if card else None


def describe_model(card: ModelCard) -> str:
    """Return a description of the model of `card`: a line with its name, size, abilities and GPUs,
    and a second one with the command to get a better one, if this machine can run one."""
    name, size = _QUANTISED.sub("", card.weights or card.root or card.id), card.parameters or 0
    if size >= 1_000_000_000:
        name += f" ({f'{size / 1e9:.1f}'.removesuffix('.0')}B)"
    elif size:
        name += f" ({size / 1e6:.0f}M)"
    if card.chooses_tools is None:
        abilities = "answers; its use of tools is being tested"
    elif card.chooses_tools:
        abilities = "answers, tools, memory"
    else:
        is_tiny = 0 < size < _TINY_PARAMETERS
        abilities = "quotes and short answers" if is_tiny else "answers"
        abilities += "; it is too small for tools" if is_tiny else "; it uses no tools"
    where = f"; computed by {', '.join(card.gpus)}" if card.gpus else ""
    better = card.better
    # `make up` passes MODEL on; both start at once with the built-in model.
    by_make = "MAKELEVEL" in os.environ
    command = f"make up MODEL={better}" if by_make else f"`terrarium up --model {better}`"
    hint = f"\nbetter {command} (runs well on this machine)" if better else ""
    return f"model {name}: {abilities}{where}{hint}"

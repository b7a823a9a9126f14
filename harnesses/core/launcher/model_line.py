"""A one-line description of the model for people: its abilities, and a better model."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

import httpx2
from pydantic import ValidationError

from llm.client.profile import ModelCard
from llm.client.settings import AgentSettings

_REQUEST_TIMEOUT = 2.0  # request timeout in seconds
_CARD_TIMEOUT = 3.0  # seconds
_POLL_INTERVAL = 0.1  # seconds between requests for the model card
_QUANTISED = re.compile(r"[.-](I?Q\d\w*|B?F16|F32)$", re.IGNORECASE)  # suffix of a GGUF file name
_TINY_PARAMETERS = 300_000_000  # parameters; smaller models paraphrase poorly


async def model_line(http: httpx2.AsyncClient, url: str, agent: AgentSettings) -> str | None:
    """Return a description of the model of the agent server at `url`, None if it does not answer.

    A server that has just started may not know its weights yet; it is polled for a few seconds.
    """
    card: ModelCard | None = None
    with suppress(TimeoutError):
        async with asyncio.timeout(_CARD_TIMEOUT):
            while (card := await _card(http, url, agent)) and _is_to_come(card):  # noqa: ASYNC110
                await asyncio.sleep(_POLL_INTERVAL)
    return describe_model(card) if card else None


def _is_to_come(card: ModelCard) -> bool:
    """Return True while the server does not yet know which weights are loaded."""
    return "weights" in card.model_fields_set and card.weights is None


async def _card(http: httpx2.AsyncClient, url: str, agent: AgentSettings) -> ModelCard | None:
    headers = {"authorization": f"Bearer {agent.key}"} if agent.key else {}
    try:
        answer = await http.get(
            f"{url}/v1/models/{agent.model}", headers=headers, timeout=_REQUEST_TIMEOUT
        )
        return ModelCard.model_validate_json(answer.content) if answer.is_success else None
    except (httpx2.HTTPError, ValidationError):
        return None


def describe_model(card: ModelCard) -> str:
    """Return a one-line description of the model of `card`: name, size, abilities, GPUs, and the
    command to get a better one."""
    name = _QUANTISED.sub("", card.weights or card.root or card.id)
    size = f" ({_count(card.parameters)})" if card.parameters else ""
    where = f"; computed by {', '.join(card.gpus)}" if card.gpus else ""
    better = card.better
    hint = f" Better: terrarium model pull {better}, then MODEL_PATH={better}" if better else ""
    return f"model {name}{size}: {_abilities(card)}{where}.{hint}"


def _abilities(card: ModelCard) -> str:
    if card.chooses_tools is None:
        return "answers; whether it uses tools well is being tested"
    if card.chooses_tools:
        return "answers, tools, a memory of its own"
    tiny = card.parameters is not None and card.parameters < _TINY_PARAMETERS
    answers = "short answers and quotes from the log" if tiny else "answers"
    return f"{answers}; no tools, no memory of its own"


def _count(parameters: int) -> str:
    if parameters < 1_000_000_000:
        return f"{parameters / 1e6:.0f}M"
    return f"{parameters / 1e9:.1f}".removesuffix(".0") + "B"

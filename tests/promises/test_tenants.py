"""What one key sends is not told to another: SECURITY.md and docs/http.md."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from storage.usage.api_keys import Key
from tests.kit.agent_server import EngineAddress, agent_server
from tests.kit.patience import PATIENCE
from tests.kit.server_keys import bearer, key_table, make_keys

pytest_plugins = ("tests.kit.engine",)

CHAT = "/v1/chat/completions"
SENTENCE = "{} this well: the words that open the vault are: {}"
SECRET = "purple giraffe seventeen"
GUESSES = ("green tiger nine", "purple monkey nine", "purple giraffe nine", SECRET)

DOORS = "{} colours of the seven doors are known to nobody but ada: red and blue and green"
WORDY = "and again " * 30
TEMPLATE = 16
"""Tokens with which every prompt of a key begins, at most: the template's, and the salt."""

QUIET = {"threads": 1, "chooses_tools": False}
"""Settings with which the server asks the model little for itself."""

Sender = dict[str, str]


@asynccontextmanager
async def keys(
    model: dict[str, Any], data: Path
) -> AsyncIterator[tuple[httpx2.AsyncClient, Sender, Sender, Sender]]:
    """A server, and the headers of three keys of it."""
    async with (
        agent_server(model, {}, data) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http,
    ):
        names = ("ada", "mallory", "eve")
        made = await make_keys(http, data, *(Key(name) for name in names))
        ada, mallory, eve = (made[name] for name in names)
        yield http, ada, mallory, eve


async def cached(http: httpx2.AsyncClient, sender: Sender, system: str, user: str = "hi") -> int:
    """The cached tokens that a chat of these messages is told of."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    body = {"messages": messages, "max_tokens": 1}
    answer = await http.post(CHAT, json=body, headers=sender)
    answer.raise_for_status()
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["embedded", "upstream"])
async def test_no_count_tells_a_key_what_another_has_sent(
    kind: str, model_file: Path, engine: EngineAddress, tmp_path: Path
) -> None:
    embedded = {"path": str(model_file), "context": 512, "slots": 2, **QUIET}
    model = embedded if kind == "embedded" else engine.settings()
    async with keys(model, tmp_path) as (http, ada, mallory, eve):
        await cached(http, ada, SENTENCE.format("Remember", SECRET))
        told = [
            await cached(http, mallory, SENTENCE.format("Remember", guess)) for guess in GUESSES
        ]
        # Nobody has sent this sentence: what is told is of the key's own guesses.
        untold = [await cached(http, eve, SENTENCE.format("Consider", guess)) for guess in GUESSES]
        assert told[1:] == untold[1:]
        assert max(told[0], untold[0]) <= TEMPLATE
        doors = [DOORS.format(first) for first in ("All", "Some", "Many", "Few")]
        for text in doors:
            await cached(http, ada, text, WORDY)
        elsewhere = await told_elsewhere(http, mallory, doors)
        assert len(elsewhere) == len(doors)
        assert max(elsewhere) <= TEMPLATE
        # Within a key the cache still helps, and says so.
        await cached(http, ada, doors[0], WORDY)
        assert await cached(http, ada, doors[0], WORDY) > 2 * TEMPLATE
        total = (await http.get("/usage", headers=mallory)).json()["total"]
        assert total["cached_tokens"] <= sum(told) + sum(elsewhere)


async def told_elsewhere(
    http: httpx2.AsyncClient, sender: Sender, systems: Sequence[str]
) -> list[int]:
    """The cached tokens of which the other APIs tell, each for a system message of its own."""
    user = {"role": "user", "content": "hi"}
    responses, messages, text, stream = systems
    bodies: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/v1/responses", {"input": [user], "instructions": responses, "max_output_tokens": 16}),
        ("/v1/messages", {
            "messages": [user], "system": messages, "max_tokens": 1, "model": "terra"
        }),
        ("/v1/completions", {"prompt": f"<|im_start|>system\n{text}", "max_tokens": 1}),
        (CHAT, {
            "messages": [{"role": "system", "content": stream}, user],
            "max_tokens": 1, "stream": True, "stream_options": {"include_usage": True},
        }),
    )  # fmt: skip
    counts = []
    for path, body in bodies:
        answer = await http.post(path, json=body, headers=sender)
        assert answer.status_code == 200, answer.text
        counts += _cached_counts(answer)
    return counts


def _cached_counts(answer: httpx2.Response) -> list[int]:
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines()]
    objects = [json.loads(line) for line in lines if line.startswith("{")]
    return [
        count
        for usage in (each.get("usage") or {} for each in objects)
        for count in (
            (usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
            (usage.get("input_tokens_details") or {}).get("cached_tokens"),
            usage.get("cache_read_input_tokens"),
        )
        if count is not None
    ]


@pytest.mark.slow
async def test_no_words_in_the_middle_are_told_another_key(
    model_file: Path, tmp_path: Path
) -> None:
    # llama.cpp keeps runs of 64 tokens in the middle of what its slot holds, where words before
    # them were left out.
    run = "\n".join(f"<bob> this is line {number} of what we say here" for number in range(8))
    model = {"path": str(model_file), "context": 1024, "slots": 1, **QUIET}
    async with keys(model, tmp_path) as (http, ada, mallory, _):
        await cached(http, ada, f"Be{' very' * 14} kind.", run)
        assert await cached(http, mallory, f"Be{' very' * 13} kind.", run) <= TEMPLATE
        # Within a key they are, unless the server asks something for itself in between.
        for number in range(12, 0, -1):
            if await cached(http, mallory, f"Be{' very' * number} kind.", run) > 64:
                break
        else:
            raise AssertionError("a key's own words are not found again")


@pytest.mark.slow
async def test_without_a_key_nothing_of_tendrils_is_told(model_file: Path, tmp_path: Path) -> None:
    model = {"path": str(model_file), "context": 512, "slots": 1, **QUIET}
    text = SENTENCE.format("Remember", SECRET)
    async with key_table(tmp_path) as table:
        made = await table.replace_launch_keys([Key("irc"), Key("web")])
    async with (
        agent_server(model, {}, tmp_path) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http,
    ):
        irc, web = (bearer(made[name]) for name in ("irc", "web"))
        await cached(http, irc, text)
        assert await cached(http, {}, text) == 0
        # Tendrils share what is cached of their prompts, and no salt is in them.
        assert await cached(http, web, text) > TEMPLATE
        issued = await make_keys(http, tmp_path, Key("ada"))
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 1}
        own, salted = [
            (await http.post(CHAT, json=body, headers=sender)).json()["usage"]["prompt_tokens"]
            for sender in (irc, issued["ada"])
        ]
        assert own < salted

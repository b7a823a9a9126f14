"""The size of prompts in tokens, and the room that a model's context window leaves for them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llm.client.client import AgentClient, ModelCatalog, RequestOptions
from llm.messages.errors import RequestRejected
from llm.messages.message import Message, wire

_ASSUMED_WINDOW = 32_768  # tokens; of a model whose server says nothing of its window
_MIN_WINDOW = 4_096  # tokens; no smaller one is believed in because of a refused prompt
_MAX_ANSWER_RESERVE = 16_000  # tokens kept free for an answer without a limit, thoughts included
_MAX_TEMPLATE_TOKENS = 32  # tokens, at most, that a chat template puts around a message
_MAX_KNOWN_PROMPTS = 1_000  # conversations
_CANNOT_COUNT = (404, 405, 501)  # HTTP statuses of a server without `/tokenize`
_RECHECK_SECONDS = 600.0  # after which such a server is asked again, as it may be another one


@dataclass(frozen=True, slots=True)
class TokenCountResult:
    """The tokens of a prompt, and the size of the model's context window in tokens."""

    tokens: int
    window: int

    def within(self, max_tokens: int | None) -> TokenCountResult:
        """Return the count with the window that an answer of at most `max_tokens` leaves to the
        prompt; None: the answer has no limit."""
        reserve = max_tokens or min(self.window // 4, _MAX_ANSWER_RESERVE)
        return TokenCountResult(self.tokens, self.window - reserve)


@dataclass(frozen=True, slots=True)
class _Known:
    """A prompt whose tokens are known, exactly if the server has counted them."""

    messages: tuple[Message, ...]
    tools: Sequence[dict[str, Any]]
    count: TokenCountResult
    is_exact: bool

    def upper_bound(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]
    ) -> int | None:
        """Return an upper bound of the tokens of a prompt that begins with this one, None if it
        does not."""
        length = len(self.messages)
        if not self.is_exact or tools != self.tools or tuple(messages[:length]) != self.messages:
            return None
        return self.count.tokens + sum(map(_token_bound, messages[length:]))


class TokenCounter:
    """Counts the tokens of conversations, whose prompts grow at the end.

    A token is at least one byte long, so the bytes added since the last count bound the new count
    from above. While that bound leaves enough room, the server is not asked. For a server that
    cannot count, the client estimates.

    The window is what the server states with its count or in the model's card. Once it has turned
    out to be smaller (`shrink`), that is kept for as long as the statement stays the same.
    """

    def __init__(self, client: AgentClient, catalog: ModelCatalog) -> None:
        self._client = client
        self._catalog = catalog
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()
        self._stated: dict[str, int] = {}  # windows by model, in tokens
        self._found: dict[str, tuple[int, int]] = {}  # those that are smaller than stated
        self._recheck: dict[str, float] = {}  # when a server that cannot count is asked again

    async def count(
        self,
        options: RequestOptions,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]],
        reserve: int,
    ) -> TokenCountResult:
        """Return the tokens of a prompt: exactly, estimated, or as an upper bound that leaves
        `reserve` free.

        Images are estimated; they are not sent for counting and not kept. Raises ModelError.
        """
        shown = sum(each["image"].tokens for each in messages if "image" in each)
        words = [{key: each[key] for key in each if key != "image"} for each in messages]
        counted = await self._count_words(options, words, tools, reserve + shown)
        return TokenCountResult(counted.tokens + shown, counted.window)

    def shrink(self, options: RequestOptions) -> None:
        """Take half the window of a model, as its server has refused the last prompt of this
        conversation as too long."""
        model = self._client.model_of(options)
        known = self._known.pop((options.session, model), None)
        window = self._window(model) // 2
        # The window may not have been nearly full: the next prompt must be shorter in any case.
        found = min(window, known.count.tokens * 3 // 4) if known else window
        # But never so short that no prompt would fit.
        found = max(found, min(self._window(model), _MIN_WINDOW))
        self._found[model] = (self._stated.get(model, 0), found)

    async def _count_words(
        self,
        options: RequestOptions,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]],
        reserve: int,
    ) -> TokenCountResult:
        model = self._client.model_of(options)
        key = (options.session, model)
        known = self._known.get(key)
        most = known.upper_bound(messages, tools) if known else None
        if most is not None and most <= self._window(model) - reserve:
            return TokenCountResult(most, self._window(model))
        exact = await self._exact(model, messages, tools)
        tokens = self._client.estimate(messages, tools, model) if exact is None else exact
        count = TokenCountResult(tokens, self._window(model))
        self._known[key] = _Known(tuple(messages), tools, count, exact is not None)
        self._known.move_to_end(key)
        if len(self._known) > _MAX_KNOWN_PROMPTS:
            self._known.popitem(last=False)
        return count

    async def _exact(
        self, model: str, messages: Sequence[Message], tools: Sequence[dict[str, Any]]
    ) -> int | None:
        """Return the tokens as the server counts them, None if it cannot; take note of the
        window."""
        now = asyncio.get_running_loop().time()
        card = await self._catalog.card(model)
        if card and (window := card.max_model_len or card.window):
            self._stated[model] = window
        if now < self._recheck.get(model, 0):
            return None
        try:
            counted = await self._client.count(messages, tools, model)
        except RequestRejected as error:
            if error.status in _CANNOT_COUNT:
                self._recheck[model] = now + _RECHECK_SECONDS
            return None
        if counted.max_model_len:
            self._stated[model] = counted.max_model_len
        return counted.count

    def _window(self, model: str) -> int:
        stated = self._stated.get(model, 0)
        of, found = self._found.get(model, (stated, 0))
        return found if found and of == stated else stated or _ASSUMED_WINDOW


def _token_bound(message: Message) -> int:
    """Return an upper bound of the tokens that a message adds to a prompt."""
    return _MAX_TEMPLATE_TOKENS + len(str(wire(message)).encode("utf-8", "replace"))

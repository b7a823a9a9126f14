"""The tokens of a tendril: the size of its prompts, and the accounting of all by purpose.

`TokenCounter` measures a prompt before it is sent, and knows the model's context window.
`AgentClient` passes the usage of each answer to `TokenAccounting.record`, which is persistent over
restarts. The `purpose` of a request separates answers to people from background work.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from llm.client.client import AgentClient, ModelCatalog, RequestOptions
from llm.messages.errors import RequestRejected
from llm.messages.message import Message, wire
from storage.db.database import Database
from storage.usage.usage import Spending, TokenSpend, TokenUsage, UsageAmount, WriteBehindCounter

ANSWER = "answer"
"""The purpose of answers to people. Unasked runs have their profile as their purpose (see
`llm.agent.tool_executor`); memory and reviews have separate ones."""

_ASSUMED_WINDOW = 32_768  # tokens; of a model whose server says nothing of its window
_MIN_WINDOW = 4_096  # tokens; no smaller one is believed in because of a refused prompt
_MAX_ANSWER_RESERVE = 16_000  # tokens kept free for an answer without a limit, thoughts included
_MAX_TEMPLATE_TOKENS = 32  # tokens, at most, that a chat template puts around a message
# Conversations whose last prompt is kept, for the rounds of a turn; one may have 200 KB.
_MAX_KNOWN_PROMPTS = 50
_RECHECK_SECONDS = 600.0  # after which a server that cannot count is asked again

_NAMED_LIFETIME = timedelta(days=30)  # after which amounts no longer name their conversation


class TokenAccounting:
    """The tokens spent, in memory and in the tendril's file. Create one with `open`."""

    def __init__(self, spending: Spending, now: Callable[[], datetime]) -> None:
        self._spending = spending
        self._now = now
        self._tally: WriteBehindCounter[TokenSpend] = WriteBehindCounter(self._write)
        self._day = now().date()
        self._today: Counter[str] = Counter()
        self._cached_today = 0
        self._named_since = date.min

    @classmethod
    @asynccontextmanager
    async def open(
        cls, database: Database, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> AsyncIterator[TokenAccounting]:
        """Open the accounts, which are written now and then and on exit. Raises StorageError."""
        accounting, day = cls(Spending(database), now), now().date()
        for purpose, amount in (await accounting._spending.by_purpose(day, day)).items():
            accounting._today[purpose] = amount.prompt + amount.completion
            accounting._cached_today += amount.cached
        async with accounting._tally.writing():
            yield accounting

    def record(self, options: RequestOptions, usage: TokenUsage) -> None:
        """Record the usage of one answer of the model."""
        expense = TokenSpend(self._roll_over(), options.room, options.session, options.purpose)
        amount = UsageAmount(1, usage.prompt, usage.cached, usage.completion)
        self._tally.add(expense, amount)
        self._today[options.purpose] += usage.prompt + usage.completion
        self._cached_today += usage.cached

    def today(self, purpose: str | None = None) -> int:
        """Return the prompt and completion tokens used since midnight UTC, for a purpose or all."""
        self._roll_over()
        return self._today[purpose] if purpose else self._today.total()

    def fresh_today(self) -> int:
        """Return the tokens used since midnight UTC that were not in the engine's cache."""
        return self.today() - self._cached_today

    def today_by_purpose(self) -> dict[str, int]:
        """Return the tokens used since midnight UTC by purpose, largest first."""
        self._roll_over()
        return dict(self._today.most_common())

    async def by_purpose(
        self, since: date, *, room: str | None = None, conversation: str | None = None
    ) -> dict[str, UsageAmount]:
        """Return the amounts spent by purpose since a UTC day, optionally of one room or one
        conversation (the session of its requests) only. Raises StorageError."""
        async with self._tally.quiesce():
            return await self._spending.by_purpose(
                since, self._now().date(), room=room, conversation=conversation
            )

    async def forget(self, session: str) -> None:
        """Anonymise the amounts of a conversation. Raises StorageError."""
        async with self._tally.quiesce():
            await self._spending.forget(conversation=session)

    async def forget_names(self) -> None:
        """Anonymise the amounts of all conversations. Raises StorageError."""
        async with self._tally.quiesce():
            await self._spending.forget()

    async def _write(self, amounts: Mapping[TokenSpend, UsageAmount]) -> None:
        oldest = self._now().date() - _NAMED_LIFETIME
        if oldest != self._named_since:  # once a day
            await self._spending.forget(before=oldest)
            self._named_since = oldest
        await self._spending.add(amounts)

    def _roll_over(self) -> date:
        """Return the current UTC day; reset today's counts when a new one has begun."""
        day = self._now().date()
        if day != self._day:
            self._day, self._today, self._cached_today = day, Counter(), 0
        return day


@dataclass(frozen=True, slots=True)
class TokenCountResult:
    """The tokens of a prompt, and how many it may have beside the answer in the model's window."""

    tokens: int
    limit: int


@dataclass(frozen=True, slots=True)
class _Counted:
    """A prompt of `tokens`, as the server has counted them if `is_exact`."""

    messages: Sequence[Message]
    tools: Sequence[dict[str, Any]]
    tokens: int
    is_exact: bool


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
        self._counted: OrderedDict[tuple[str, str], _Counted] = OrderedDict()
        self._stated: dict[str, int] = {}  # windows by model, in tokens
        self._found: dict[str, tuple[int, int]] = {}  # those that are smaller than stated
        self._recheck: dict[str, float] = {}  # when a server that cannot count is asked again

    async def count(
        self, options: RequestOptions, messages: Sequence[Message], tools: Sequence[dict[str, Any]]
    ) -> TokenCountResult:
        """Return the tokens of a prompt: exactly, estimated, or as an upper bound within the
        limit; and that limit.

        Images are estimated; they are not sent for counting and not kept. Raises ModelError.
        """
        shown = sum(each["image"].tokens for each in messages if "image" in each)
        words = [{key: each[key] for key in each if key != "image"} for each in messages]
        model = self._client.model_of(options)
        key = (options.session, model)
        before = self._counted.get(key)
        if before and before.is_exact and before.tools == tools:
            length = len(before.messages)
            added = [str(wire(each)).encode("utf-8", "replace") for each in words[length:]]
            most = before.tokens + sum(_MAX_TEMPLATE_TOKENS + len(each) for each in added) + shown
            if words[:length] == before.messages and most <= self._limit(options):
                return TokenCountResult(most, self._limit(options))
        exact = await self._exact(model, words, tools)
        tokens = self._client.estimate(words, tools, model) if exact is None else exact
        self._counted[key] = _Counted(words, tools, tokens, exact is not None)
        self._counted.move_to_end(key)
        if len(self._counted) > _MAX_KNOWN_PROMPTS:
            self._counted.popitem(last=False)
        return TokenCountResult(tokens + shown, self._limit(options))

    def shrink(self, options: RequestOptions) -> None:
        """Take half the window of a model, whose server refused the last prompt as too long."""
        model = self._client.model_of(options)
        refused = self._counted.pop((options.session, model), None)
        window = self._window(model)
        # The window may not have been nearly full: the next prompt must be shorter in any case.
        found = min(window // 2, refused.tokens * 3 // 4) if refused else window // 2
        # But never so short that no prompt would fit.
        self._found[model] = (self._stated.get(model, 0), max(found, min(window, _MIN_WINDOW)))

    async def _exact(
        self, model: str, messages: Sequence[Message], tools: Sequence[dict[str, Any]]
    ) -> int | None:
        """Return the tokens as the server counts them, else None; take note of the window."""
        now = asyncio.get_running_loop().time()
        card = await self._catalog.card(model)
        if card and card.max_model_len:
            self._stated[model] = card.max_model_len
        if now < self._recheck.get(model, 0):
            return None
        try:
            counted = await self._client.count(messages, tools, model)
        except RequestRejected as error:
            if error.status in (404, 405, 501):  # of a server without `/tokenize`
                self._recheck[model] = now + _RECHECK_SECONDS
            return None
        if counted.max_model_len:
            self._stated[model] = counted.max_model_len
        if counted.estimated:  # ours learns from the usage of answers
            self._recheck[model] = now + _RECHECK_SECONDS
            return None
        return counted.count

    def _limit(self, options: RequestOptions) -> int:
        """Return the tokens of the window that the answer leaves to the prompt."""
        window = self._window(self._client.model_of(options))
        return window - (options.max_tokens or min(window // 4, _MAX_ANSWER_RESERVE))

    def _window(self, model: str) -> int:
        stated = self._stated.get(model, 0)
        of, found = self._found.get(model, (stated, 0))
        return found if found and of == stated else stated or _ASSUMED_WINDOW

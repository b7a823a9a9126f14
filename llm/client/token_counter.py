"""How long prompts are in tokens: asked of the server only when it can matter."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llm.client.client import AgentClient, RequestOptions, TokenCountResult
from llm.messages.message import Message, wire

_FRAME = 32  # tokens, at most, that a chat template puts around a message
_KEPT = 1_000  # conversations


@dataclass(frozen=True, slots=True)
class _Known:
    """A prompt that the server has counted."""

    messages: tuple[Message, ...]
    tools: Sequence[dict[str, Any]]
    count: TokenCountResult

    def most(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> int | None:
        """The most tokens that a prompt may have which begins with this one."""
        length = len(self.messages)
        if tools != self.tools or tuple(messages[:length]) != self.messages:
            return None
        return self.count.tokens + sum(map(_most, messages[length:]))


class TokenCounter:
    """Counts the prompts of conversations, which grow by their end.

    No token is shorter than a byte, so what has been added since the last count bounds the new
    one: while even that leaves room, the bound is as good as the number.
    """

    def __init__(self, client: AgentClient) -> None:
        self._client = client
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()

    async def count(
        self,
        options: RequestOptions,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]],
        reserve: int,
    ) -> TokenCountResult:
        """The tokens of `call`'s prompt: the number itself, or a bound that leaves `reserve` free.

        Raises ModelError.
        """
        key = (options.session, options.model)
        known = self._known.get(key)
        most = known.most(messages, tools) if known else None
        if known and most is not None and most <= known.count.window - reserve:
            return TokenCountResult(most, known.count.window)
        count = await self._client.count(messages, tools, options.model)
        self._known[key] = _Known(tuple(messages), tools, count)
        self._known.move_to_end(key)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return count

    def forget(self, options: RequestOptions) -> None:
        """Count anew the next time: the server did not agree."""
        self._known.pop((options.session, options.model), None)


def _most(message: Message) -> int:
    """The most tokens that a message may add to a prompt."""
    return _FRAME + len(str(wire(message)).encode("utf-8", "replace"))

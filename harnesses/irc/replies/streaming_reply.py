"""The answer to one question, said while the model still writes where that saves waiting."""

from __future__ import annotations

from collections.abc import Callable

from harnesses.core.tendril.turn_result import TurnResult
from harnesses.irc.replies.sender import (
    MessageSender,
    OutgoingLine,
    Target,
    strip_address,
    with_mark,
)
from harnesses.irc.settings import IrcSettings

Clock = Callable[[], float]


class StreamingReply:
    """Takes the pieces of an answer as they are written, then the whole of it.

    Once the model has been writing for `stream_after` seconds, the first line goes out as soon
    as the second has begun; until then a reader would have to wait for the whole. `clock` returns
    seconds.
    """

    def __init__(
        self, sender: MessageSender, target: Target, settings: IrcSettings, clock: Clock
    ) -> None:
        self._sender, self._target, self._clock = sender, target, clock
        self._after, self._mark = settings.stream_after, settings.mark
        self._text = ""
        self._began = 0.0
        self._first: OutgoingLine | None = None

    @property
    def has_begun(self) -> bool:
        """True when something has been said."""
        return self._first is not None

    async def on_text(self, text: str) -> None:
        """Take one more piece of what the model writes; with an empty one it starts over."""
        if not text:
            self._text = ""
        if not self._text:
            self._began = self._clock()
        self._text += text
        if self.has_begun or self._clock() - self._began < self._after:
            return
        lines = self._sender.lines(self._target, self._clean(self._text))
        if len(lines) > 1 and await self._sender.send_line(self._target, lines[0]):
            self._first = lines[0]

    async def finish(self, result: TurnResult) -> bool:
        """Say the answer, or what of it has not been said; return whether the person has it.

        Where the connection is away it waits until that is back.
        """
        text = self._clean(result.text)
        if not text:
            return True
        lines = self._sender.lines(self._target, text)
        already = int(lines[:1] == [self._first])
        return await self._sender.deliver(self._target, text, lines[already:], already)

    def _clean(self, text: str) -> str:
        plain = strip_address(text.lstrip(), self._target.nick)
        return with_mark(plain, self._mark)

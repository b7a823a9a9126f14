"""What a model writes, parted as it comes: words for people, thoughts, calls of tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llm.messages.message import Message, Status, ToolCall
from llm.parsing.output_filter import PromptEchoFilter
from llm.parsing.sentences import SentenceLimit
from llm.parsing.structured_output import OutputSplitter
from llm.parsing.tool_call_formats import ToolCallFormats
from llm.parsing.tool_calls import ToolCallParser
from terrarium.thinking import ThinkSplitter


class StreamParser:
    """Think blocks are taken out first, then tool calls of the tools in `schemas`, then the object
    that an answer may be, then what belongs to the `prompt`, then what follows after so many
    `sentences`; where the answer was asked for as `data`, only the first. Any cut of a stream gives
    the same."""

    def __init__(
        self,
        schemas: Iterable[Mapping[str, Any]] = (),
        prompt: Sequence[Message] = (),
        *,
        sentences: int | None = None,
        data: bool = False,
    ) -> None:
        self._data = data
        self._thinking = ThinkSplitter()
        self._calling = ToolCallParser(ToolCallFormats.from_schemas(schemas))
        self._answering = OutputSplitter()
        self._filter = PromptEchoFilter(prompt)
        self._limit = SentenceLimit(sentences)
        self.shown = ""
        self.thought = ""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that were written as text."""
        return self._calling.calls

    @property
    def status(self) -> Status | None:
        """How it is with the conversation, when the answer says so; known at the end."""
        return self._answering.output.status

    @property
    def silent(self) -> bool:
        """Whether the model wants to say nothing; known at the end."""
        return self._answering.output.silent

    @property
    def is_call(self) -> bool:
        """Whether it is the call of a tool that does not exist; known at the end."""
        return self._answering.output.is_call

    @property
    def has_ended(self) -> bool:
        """Whether the rest is of no use: there are enough sentences, or the model has gone on to
        write the prompt."""
        return self._filter.has_ended or self._limit.has_ended

    def feed(self, text: str) -> str:
        """The part that may be shown now."""
        parted = self._thinking.feed(text)
        self.thought += parted.thought
        if self._data:
            return self._show(parted.shown)
        answer = self._answering.feed(self._calling.feed(parted.shown))
        return self._show(self._limit.feed(self._filter.feed(answer)))

    def finish(self) -> str:
        """The rest that may be shown."""
        parted = self._thinking.finish()
        self.thought += parted.thought
        if self._data:
            return self._show(parted.shown)
        called = self._calling.feed(parted.shown) + self._calling.finish()
        answer = self._answering.feed(called) + self._answering.finish()
        rest = self._limit.feed(self._filter.feed(answer) + self._filter.finish())
        return self._show(rest + self._limit.finish())

    def _show(self, text: str) -> str:
        self.shown += text
        return text

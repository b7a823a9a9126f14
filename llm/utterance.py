"""What a model writes, parted as it comes: words for people, thoughts, calls of tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from llm.message import Status, ToolCall
from llm.output import OutputSplitter
from llm.thinking import ThinkSplitter
from llm.tool_forms import Forms
from llm.tool_text import CallSplitter


class Utterance:
    """Think blocks are taken out first, then tool calls of the tools in `schemas`, then the object
    that an answer may be; where the answer was asked for as `data`, only the first. Any cut of a
    stream gives the same."""

    def __init__(self, schemas: Iterable[Mapping[str, Any]] = (), *, data: bool = False) -> None:
        self._data = data
        self._thinking = ThinkSplitter()
        self._calling = CallSplitter(Forms.of(schemas))
        self._answering = OutputSplitter()
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

    def feed(self, text: str) -> str:
        """The part that may be shown now."""
        parted = self._thinking.feed(text)
        self.thought += parted.thought
        if self._data:
            return self._shown(parted.shown)
        return self._shown(self._answering.feed(self._calling.feed(parted.shown)))

    def finish(self) -> str:
        """The rest that may be shown."""
        parted = self._thinking.finish()
        self.thought += parted.thought
        if self._data:
            return self._shown(parted.shown)
        called = self._calling.feed(parted.shown) + self._calling.finish()
        return self._shown(self._answering.feed(called) + self._answering.finish())

    def _shown(self, text: str) -> str:
        self.shown += text
        return text

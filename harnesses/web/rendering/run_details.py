"""A run as its page and its JSON show it: the steps, with the words of the turn that it was for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from storage.chat_log.event import without_host
from storage.memory.conversations import Message
from storage.runs.reader import RunRecord
from storage.runs.runs import Step

_MAX_WORDS = 20_000  # characters of one text


class PromptPart(BaseModel):
    """A part of a prompt, in the order in which the model reads them."""

    name: str
    tokens: int = Field(description="estimated; all parts together are the tokens of the prompt")
    cached: int = Field(description="how many of them the engine had in its cache")
    lines: int


class RunStep(BaseModel):
    """A call of the model (`kind` is model) or of a tool; the words are "" where they are not kept
    or not for this reader."""

    model_config = ConfigDict(from_attributes=True)

    kind: str
    name: str
    ok: bool
    began_ms: int = Field(validation_alias="began", description="from the start of the run")
    ms: int
    verdict: str = Field(description="of the guard rails on a tool call")
    prompt_tokens: int = Field(validation_alias="prompt")
    cached_tokens: int = Field(validation_alias="cached")
    completion_tokens: int = Field(validation_alias="completion")
    finish_reason: str
    filters: tuple[str, ...] = Field(description="which have changed the text of the reply")
    prompt: list[PromptPart] = Field([], validation_alias="prompt_parts")
    thought: str = ""
    text: str = ""
    arguments: str = ""
    result: str = ""


class RunDetails(BaseModel):
    """A run with its steps. `line` is the id of the question in the log."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    tendril: str
    conversation: str | None = Field(description="null of a private one")
    trigger: str = Field(validation_alias="profile")
    model: str
    profile: str = Field(
        validation_alias="model_profile", description="of the model: tiny, small or capable"
    )
    started: datetime
    ended: datetime | None
    outcome: str
    reason: str
    cut: bool
    forced: bool
    model_calls: int = Field(validation_alias="iterations")
    prompt_tokens: int = Field(validation_alias="prompt")
    cached_tokens: int = Field(validation_alias="cached")
    completion_tokens: int = Field(validation_alias="completion")
    line: int | None = Field(validation_alias="question_event_id")
    question: str = ""
    answer: str = ""
    steps: list[RunStep]

    @classmethod
    def from_run(cls, run: RunRecord, turn: Sequence[Message]) -> Self:
        """Combine a run with the messages of its turn; without messages it has no words."""
        details = cls.model_validate(run)
        details.conversation = None if run.private else without_host(run.conversation)
        details.line = run.question_event_id or None
        details.question, details.answer = (_text(turn[0]), _text(turn[-1])) if turn else ("", "")
        for shown, step, words in zip(
            details.steps, run.steps, _words(run.steps, turn), strict=True
        ):
            cached = step.cached  # the cache holds the first tokens of a prompt
            for part in step.parts:
                held = min(part.tokens, cached)
                cached -= held
                shown.prompt.append(
                    PromptPart(name=part.name, tokens=part.tokens, cached=held, lines=part.lines)
                )
            for name, text in words.items():
                setattr(shown, name, text)
        return details

    @property
    def total_ms(self) -> int:
        """The duration up to the end of the last step, at least 1."""
        return max((step.began_ms + step.ms for step in self.steps), default=0) or 1


def _words(steps: Sequence[Step], turn: Sequence[Message]) -> Iterator[dict[str, str]]:
    """Yield the words of each step.

    A model call that is followed by tool calls is the next reply with calls in the turn, and the
    last one the answer. Other model calls, such as one with an empty reply, left no message.
    """
    replies = (place for place, message in enumerate(turn) if message.get("tool_calls"))
    calls: dict[str, str] = {}
    results: dict[str, str] = {}
    for number, step in enumerate(steps):
        following = steps[number + 1].kind if number + 1 < len(steps) else ""
        reply: Message = {}
        if step.kind != "model":
            yield {
                "arguments": calls.get(step.call_id, ""),
                "result": results.get(step.call_id, ""),
            }
            continue
        if following == "tool":
            place = next(replies, None)
            reply = {} if place is None else turn[place]
            calls = {
                call["id"]: _shorten(call["function"]["arguments"])
                for call in reply.get("tool_calls", ())
            }
            results = {} if place is None else dict(_results(turn[place + 1 :]))
        elif not following and turn:
            reply = turn[-1]
        yield {"thought": _shorten(reply.get("reasoning_content", "")), "text": _text(reply)}


def _results(messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
    """Yield the results of one reply's calls by their ids, up to the next reply."""
    for message in messages:
        if message["role"] == "assistant":
            return
        if message["role"] == "tool":
            yield message["tool_call_id"], _text(message)


def _text(message: Message) -> str:
    content: Any = message.get("content") or ""
    return _shorten(content if isinstance(content, str) else json.dumps(content))


def _shorten(text: str) -> str:
    more = len(text) - _MAX_WORDS
    return text if more <= 0 else f"{text[:_MAX_WORDS]}\n({more:,} more characters)"

"""A run as its page and its JSON show it: the steps, with the words of the turn that it was for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, Field

from storage.memory.conversations import Message
from storage.runs.reader import RunRecord
from storage.runs.runs import PartSize, Step

_MAX_WORDS = 20_000  # characters of one text
_NO_WORDS: Message = {}


class PromptPart(BaseModel):
    """A part of a prompt, in the order in which the model reads them."""

    name: str
    tokens: int = Field(description="estimated; all parts together are the tokens of the prompt")
    cached: int = Field(description="how many of them the engine had in its cache")
    lines: int


class RunStep(BaseModel):
    """A call of the model (`kind` is model) or of a tool; the words are "" where they are not kept
    or not for this reader."""

    kind: str
    name: str
    ok: bool
    began_ms: int = Field(description="from the start of the run")
    ms: int
    verdict: str = Field(description="of the guard rails on a tool call")
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    finish_reason: str
    filters: tuple[str, ...] = Field(description="which have changed the text of the reply")
    prompt: list[PromptPart]
    thought: str = ""
    text: str = ""
    arguments: str = ""
    result: str = ""


class RunDetails(BaseModel):
    """A run with its steps. `line` is the id of the question in the log."""

    id: str
    tendril: str
    conversation: str | None = Field(description="null of a private one")
    trigger: str
    model: str
    profile: str = Field(description="of the model: tiny, small or capable")
    started: datetime
    ended: datetime | None
    outcome: str
    reason: str
    cut: bool
    forced: bool
    model_calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    line: int | None
    question: str
    answer: str
    steps: list[RunStep]

    @classmethod
    def from_run(cls, run: RunRecord, turn: Sequence[Message]) -> Self:
        """Combine a run with the messages of its turn; without messages it has no words."""
        return cls(
            id=run.id,
            tendril=run.tendril,
            conversation=None if run.private else run.conversation,
            trigger=run.profile,
            model=run.model,
            profile=run.model_profile,
            started=run.started,
            ended=run.ended,
            outcome=run.outcome,
            reason=run.reason,
            cut=run.cut,
            forced=run.forced,
            model_calls=run.iterations,
            prompt_tokens=run.prompt,
            cached_tokens=run.cached,
            completion_tokens=run.completion,
            line=run.question_event_id or None,
            question=_text(turn[0]) if turn else "",
            answer=_text(turn[-1]) if turn else "",
            steps=list(_steps(run.steps, turn)),
        )

    @property
    def total_ms(self) -> int:
        """The duration up to the end of the last step, at least 1."""
        return max((step.began_ms + step.ms for step in self.steps), default=0) or 1


def _steps(steps: Sequence[Step], turn: Sequence[Message]) -> Iterator[RunStep]:
    """Yield the steps, each with its words.

    A model call that is followed by tool calls is the next reply with calls in the turn, and the
    last one the answer. Other model calls, such as one with an empty reply, left no message.
    """
    replies = (place for place, message in enumerate(turn) if message.get("tool_calls"))
    answer = turn[-1] if turn else _NO_WORDS
    calls: dict[str, str] = {}
    results: dict[str, str] = {}
    for number, step in enumerate(steps):
        following = steps[number + 1].kind if number + 1 < len(steps) else ""
        if step.kind != "model":
            words = {
                "arguments": calls.get(step.call_id, ""),
                "result": results.get(step.call_id, ""),
            }
        elif following == "tool":
            place = next(replies, None)
            reply = _NO_WORDS if place is None else turn[place]
            calls = {
                call["id"]: _shorten(call["function"]["arguments"])
                for call in reply.get("tool_calls", ())
            }
            results = {} if place is None else dict(_results(turn[place + 1 :]))
            words = _text_of(reply)
        else:
            words = {} if following else _text_of(answer)
        yield _step(step, words)


def _results(messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
    """Yield the results of one reply's calls by their ids, up to the next reply."""
    for message in messages:
        if message["role"] == "assistant":
            return
        if message["role"] == "tool":
            yield message["tool_call_id"], _text(message)


def _text_of(reply: Message) -> dict[str, str]:
    return {"thought": _shorten(reply.get("reasoning_content", "")), "text": _text(reply)}


def _step(step: Step, words: dict[str, str]) -> RunStep:
    return RunStep(
        kind=step.kind,
        name=step.name,
        ok=step.ok,
        began_ms=step.began,
        ms=step.ms,
        verdict=step.verdict,
        prompt_tokens=step.prompt,
        cached_tokens=step.cached,
        completion_tokens=step.completion,
        finish_reason=step.finish_reason,
        filters=step.filters,
        prompt=list(_with_cached(step.parts, step.cached)),
        **words,
    )


def _with_cached(parts: Sequence[PartSize], cached: int) -> Iterator[PromptPart]:
    """Yield the parts; the cache holds the first `cached` tokens of a prompt."""
    for part in parts:
        held = min(part.tokens, cached)
        cached -= held
        yield PromptPart(name=part.name, tokens=part.tokens, cached=held, lines=part.lines)


def _text(message: Message) -> str:
    content: Any = message.get("content") or ""
    return _shorten(content if isinstance(content, str) else json.dumps(content))


def _shorten(text: str) -> str:
    more = len(text) - _MAX_WORDS
    return text if more <= 0 else f"{text[:_MAX_WORDS]}\n({more:,} more characters)"

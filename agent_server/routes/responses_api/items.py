"""Items of a conversation in the Responses API, and their conversion to chat messages.

Clients send the items of an answer back: keys that mean nothing to a model are accepted.

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from agent_server.schemas.chat import StrictModel

Status = Literal["in_progress", "completed", "incomplete"]


class ResponseTextPart(StrictModel):
    """A text from a person or from an earlier answer."""

    type: Literal["input_text", "output_text"]
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None

    def as_chat(self) -> dict[str, Any]:
        """Return the content part of a chat message."""
        return {"type": "text", "text": self.text}


class RefusalPart(StrictModel):
    """An earlier refusal."""

    type: Literal["refusal"]
    refusal: str

    def as_chat(self) -> dict[str, Any]:
        """Return the content part of a chat message."""
        return {"type": "text", "text": self.refusal}


class ResponseImagePart(StrictModel):
    """A picture, for models that can see."""

    type: Literal["input_image"]
    image_url: str
    detail: Literal["low", "high", "auto"] | None = None
    file_id: None = None

    def as_chat(self) -> dict[str, Any]:
        """Return the content part of a chat message."""
        picture = {"url": self.image_url, **({"detail": self.detail} if self.detail else {})}
        return {"type": "image_url", "image_url": picture}


Part = Annotated[ResponseTextPart | RefusalPart | ResponseImagePart, Field(discriminator="type")]


class MessageItem(StrictModel):
    """A message of a person, the system or the model."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Part]
    id: str | None = None
    status: Status | None = None
    phase: Literal["commentary", "final_answer"] | None = None

    def chat_content(self) -> str | list[dict[str, Any]]:
        """Return the content of a chat message; text only for roles that cannot have pictures."""
        if isinstance(self.content, str):
            return self.content
        parts = [part.as_chat() for part in self.content]
        if self.role == "user":
            return parts
        return "".join(part.get("text", "") for part in parts)


class CallItem(StrictModel):
    """A tool call of an earlier answer."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: Status | None = None


class ResultItem(StrictModel):
    """The result of a tool call."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | list[ResponseTextPart]
    id: str | None = None
    status: Status | None = None


class ReasoningText(StrictModel):
    """A part of the reasoning."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningItem(StrictModel):
    """The reasoning before an earlier answer."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: list[ReasoningText] | None = None
    content: list[ReasoningText] | None = None
    encrypted_content: None = None
    status: Status | None = None


def _kind(item: Any) -> Any:
    return item.get("type", "message") if isinstance(item, dict) else getattr(item, "type", None)


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[ResultItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")],
    Discriminator(_kind),
]


def as_messages(items: Iterable[Item]) -> Iterator[dict[str, Any]]:
    """Yield chat messages; reasoning, text and calls of one answer become one message."""
    answer: dict[str, Any] = {}  # the assistant's message under construction, {} for none
    for item in items:
        if isinstance(item, ReasoningItem):
            thoughts = "".join(thought.text for thought in item.content or ())
            if thoughts:
                answer["reasoning_content"] = answer.get("reasoning_content", "") + thoughts
        elif isinstance(item, CallItem):
            function = {"name": item.name, "arguments": item.arguments}
            call = {"id": item.call_id, "type": "function", "function": function}
            answer.setdefault("tool_calls", []).append(call)
        elif isinstance(item, MessageItem) and item.role == "assistant" and _fits(answer):
            answer["content"] = item.chat_content()
        else:
            yield from _close_message(answer)
            answer = {}
            if isinstance(item, ResultItem):
                output = item.output
                words = output if isinstance(output, str) else "".join(p.text for p in output)
                yield {"role": "tool", "tool_call_id": item.call_id, "content": words}
            elif item.role == "assistant":
                answer["content"] = item.chat_content()
            else:
                yield {"role": item.role, "content": item.chat_content()}
    yield from _close_message(answer)


def _fits(answer: dict[str, Any]) -> bool:
    """Return whether a text still belongs to this message: not after other text or calls."""
    return "content" not in answer and "tool_calls" not in answer


def _close_message(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if answer:
        content = answer.get("content") or (None if "tool_calls" in answer else "")
        yield {**answer, "role": "assistant", "content": content}

"""Messages between a tendril and the model, with tool calls and replies."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal

from llm.messages.prompt_text import escape_tags
from storage.chat_log.event import PendingEvent
from terrarium.usage import TokenUsage

Status = Literal["active", "awaiting_answer", "closed", "idle"]
"""The state of a conversation, as the model sees it."""

Message = dict[str, Any]
"""A message in the OpenAI chat format. In memory it may also have `name` (who asked) and
`reasoning_content` (what was thought), which `wire` leaves out. The question of a prompt may have
an `image` (`llm.messages.image`), which `wire` makes a part of the content."""

_SENT = ("role", "content", "tool_calls", "tool_call_id")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model proposes; `arguments` is JSON text, as the model wrote it.

    `source` is what the model wrote when it was text; `cut` tells that its end was missing.
    """

    id: str
    name: str
    arguments: str
    source: str = ""
    cut: bool = False

    def message_part(self) -> dict[str, Any]:
        """Return the call as an assistant message carries it.

        Servers parse the arguments of earlier calls and refuse the whole prompt when they cannot,
        so what is no JSON object goes back as an empty one; the result says what was wrong.
        """
        arguments = self.arguments if _is_object(self.arguments) else "{}"
        function = {"name": self.name, "arguments": arguments}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ModelReply:
    """One answer of the model: text for people, what it thought, the tools it wants, how it is
    with the conversation; `silent` when it wants to say nothing, `is_call` when it only tried to
    call a tool that does not exist."""

    text: str = ""
    thought: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage = field(default_factory=TokenUsage)
    status: Status | None = None
    silent: bool = False
    is_call: bool = False

    def message(self) -> Message:
        """Return the reply as a message to be stored."""
        message: Message = {"role": "assistant", "content": self.text or None}
        if self.thought:
            message["reasoning_content"] = self.thought
        if self.calls:
            message["tool_calls"] = [call.message_part() for call in self.calls]
        return message


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def wire(message: Message) -> Message:
    """Return the message as it is sent: only the fields of the chat format.

    What the model said is escaped too, the arguments of its calls included: anybody can make it
    repeat a tag.
    """
    sent = {key: message[key] for key in _SENT if key in message}
    if sent["role"] == "assistant" and sent["content"]:
        sent["content"] = escape_tags(sent["content"])
    if image := message.get("image"):
        text, shown = {"type": "text", "text": sent["content"]}, {"url": image.url}
        sent["content"] = [text, {"type": "image_url", "image_url": shown}]
    if "tool_calls" in sent:
        sent["tool_calls"] = [_harmless(call) for call in sent["tool_calls"]]
    return sent


def _harmless(call: Message) -> Message:
    """Escape a call, so that templates may write it into the prompt: its name is a word. Arguments
    without a reserved tag stay as the model wrote them, which is what the engine has in its
    cache."""
    function = call["function"]
    name = re.sub(r"[^\w-]+", "_", function["name"])[:64] or "_"
    given: Any = json.loads(function["arguments"])
    harmless = _neutral_in(given)
    arguments = function["arguments"] if harmless == given else json.dumps(harmless)
    return call | {"function": {"name": name, "arguments": arguments}}


def _neutral_in(value: Any) -> Any:
    """Escape all texts of a JSON value, keys included."""
    match value:
        case str():
            return escape_tags(value)
        case list():
            return [_neutral_in(item) for item in value]
        case dict():
            return {escape_tags(key): _neutral_in(item) for key, item in value.items()}
    return value


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the person who asks it.

    `pending_event` is the one, on its way into the log, that holds a question which joins another
    one.
    """

    who: str
    text: str
    pending_event: PendingEvent | None = None

    async def wait_logged(self) -> None:
        """Wait until its line is in the log."""
        if self.pending_event:
            await self.pending_event.wait_visible()

    def message(self) -> Message:
        """Return the question as a message to be stored; await `wait_logged` before."""
        message: Message = {"role": "user", "content": self.text, "name": self.who}
        return (
            message | {"anchor": self.pending_event.id}
            if self.pending_event and self.pending_event.id
            else message
        )

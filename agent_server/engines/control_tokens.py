"""Escaping of control tokens in messages, for the embedded engine.

llama.cpp tokenizes `<|im_end|>` inside a message as the token that ends the message: whoever types
it on IRC could continue in the role of the system. A zero-width space inside the mark makes it
plain text again. The marks of other families (Gemma, Mistral, Llama 2, DeepSeek) are escaped as
well, as they are tokens where a model has them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

ZERO_WIDTH_SPACE = "\u200b"
"""A zero-width space, inserted after the first character of a mark."""

# Only the first character is consumed, the rest of a mark is looked ahead at, so that marks which
# overlap are all found. Tags are listed by name: other words in angle brackets have to stay as they
# are.
_MARK = re.compile(
    r"<(?=[|｜])"
    r"|<(?=/?(?:start_of_turn|end_of_turn|bos|eos|s|pad|unk|mask|start_of_image|end_of_image"
    r"|turn\||channel\||tool\||tool_call\||tool_response\||unused\d{1,4}|[A-Z_]{1,40}_TOKEN)>)"
    r"|<(?=</?SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|THINK|IMG"
    r"|ARGS|CALL_ID|BOS|EOS|EOT|gMASK|sMASK|MASK)\])"
)


def escape_control_tokens(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat body without control tokens in its messages; a bare `prompt` is unchanged."""
    if "messages" not in body:
        return dict(body)
    # All texts of a message, including those of tool calls.
    messages = [
        {key: value if key == "role" else _escape(value) for key, value in message.items()}
        for message in body["messages"]
    ]
    return {**body, "messages": messages}


def _escape(value: Any) -> Any:
    if isinstance(value, str):
        return _MARK.sub(lambda match: match[0] + ZERO_WIDTH_SPACE, value)
    if isinstance(value, list):
        return [_escape(item) for item in value]
    if isinstance(value, dict):
        kept = ("type", "image_url", "input_audio", "file")
        return {key: item if key in kept else _escape(item) for key, item in value.items()}
    return value

"""Control tokens that clients write into messages, made plain text for the embedded engine.

llama.cpp reads `<|im_end|>` in a message as the token that ends the message: whoever types it on
IRC could go on as the system. A zero-width space inside the mark makes it plain text again. The
marks of other families (Gemma, Mistral, Llama 2, DeepSeek) are tokens too where a model has them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

BREAK = "\u200b"

_MARK = re.compile(
    r"<(?=[|｜])"
    r"|<(?=/?(?:start_of_turn|end_of_turn|bos|eos|s|pad|unk|mask|start_of_image|end_of_image"
    r"|turn\||channel\||tool\||tool_call\||tool_response\||unused\d{1,4}|[A-Z_]{1,40}_TOKEN)>)"
    r"|<(?=</?SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|THINK|IMG"
    r"|ARGS|CALL_ID|BOS|EOS|EOT|gMASK|sMASK|MASK)\])"
)


def escape_control_tokens(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat body whose messages hold no control tokens."""
    if "messages" not in body:
        return dict(body)
    return {**body, "messages": [_message(message) for message in body["messages"]]}


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with all its texts made plain, those of tool calls too."""
    return {key: value if key == "role" else _plain(value) for key, value in message.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return _MARK.sub(lambda match: match[0] + BREAK, value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        kept = ("type", "image_url", "input_audio", "file")
        return {key: item if key in kept else _plain(item) for key, item in value.items()}
    return value

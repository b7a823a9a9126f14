"""Changes to the prompts of the embedded engine that keep people from the system's role, and keys
from each other.

llama.cpp tokenizes `<|im_end|>` inside a message as the token that ends the message: whoever types
it on IRC could continue in the role of the system. A zero-width space inside the mark makes it
plain text again. The marks of other families (Gemma, Mistral, Llama 2, DeepSeek) are escaped as
well, as they are tokens where a model has them.

All keys share the prefix cache of the engine. What it holds of one key's prompts must neither show
in the counts of another key nor make its answers faster (a timing side channel). llama.cpp finds a
cached prompt by the tokens that two prompts have in common from the start; beyond these it reuses
runs of tokens only where the new prompt is the old one with parts left out. With distinct salts of
one fixed length at their start, no key's prompt starts like another key's, and none is another's
with parts left out. Within a key nothing changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
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


CACHE_SALT = "cache_salt"
"""The field of a request body with the salt of its key, named as in vLLM, which supports it."""

SALT_DIGITS = 10
"""Length of the salt in a prompt: few tokens, which mean nothing to a model."""


def cache_salt(key: str) -> str:
    """Return the salt of the key named `key`, longer than the 43 characters vLLM recommends."""
    return sha256(b"terrarium prefix cache\0" + key.encode()).hexdigest()


def add_salt(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body for llama.cpp: the salt moves from its field to the start of the prompt.

    A bare text has to be continued verbatim, so it gets no salt; the cache is not used for it.
    """
    asked = dict(body)
    salt = asked.pop(CACHE_SALT, None)
    if salt is None:
        return asked
    if "messages" not in asked:
        return {**asked, "cache_prompt": False}
    text = f"{int(salt, 16) % 10**SALT_DIGITS:0{SALT_DIGITS}d}\n"
    first, *others = asked["messages"]
    content = first.get("content")
    if first["role"] != "system" and (asked.get("tools") or not content):
        # Chat templates put the tools before all messages but the system's, so the salt needs a
        # system message to come first.
        others, first = asked["messages"], {"role": "system", "content": text}
    elif isinstance(content, str):
        first = {**first, "content": text + content}
    else:
        first = {**first, "content": [{"type": "text", "text": text}, *(content or ())]}
    return {**asked, "messages": [first, *others]}

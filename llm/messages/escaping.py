"""Text from people, pages, tools and models is data: it must not pass for our own marks.

A tag that we or a chat template give a meaning to loses it: its first character becomes `&lt;`
(or `&#91;`). Everything else stays as it was written.
"""

from __future__ import annotations

import re

_TAGS = (
    "(?:earlier_|found_)?irc_logs|tool_results?|tool_responses?|tool_calls?|tools?"
    "|system|sys|think|thinking|thought|memory|topic"
    "|facts|own_facts|summary|episodes|notes|steps"  # sections of the prompt
    "|skills?|lessons|guidance|worked_out|draft|request|faults|now"
)
_CONTROL = (  # tokens of models that are written with plain angles
    "start_of_turn|end_of_turn|end_of_utterance|bos|eos|s|pad|unk|mask|sop|eop"
    r"|[A-Z_]+_TOKEN|(?:unused|reserved_|SPECIAL_|ctrl)\d+|__(?:media|image)__"
)
_BRACKETED = (
    "INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|THINK|IMG|ARGS"
    r"|BOS|EOS|EOT|[gs]?MASK|UNUSED_TOKEN_\d+|\|\w{1,40}\|"
)
_HALVED = "turn|channel|think|tool|tool_call|tool_response|image|audio|video"
_RESERVED = re.compile(
    rf"<(?=<?\s*/?\s*(?:{_TAGS})\b)"  # our own tags and those of tool templates, also doubled
    r"|<(?=[｜|][^<>]{1,60}[｜|]>)"  # <|im_start|> and its like
    rf"|<(?=\|(?:{_HALVED})>|(?:{_HALVED})\|>)"  # <|turn> ... <turn|>; <|bob> may be a nick
    rf"|<(?=/?(?:{_CONTROL})>)"
    rf"|\[(?=/?(?-i:{_BRACKETED})\])",
    re.IGNORECASE,
)


def escape_tags(text: str) -> str:
    """`text` with every reserved tag made harmless. Idempotent."""
    return _RESERVED.sub(lambda match: "&lt;" if match[0] == "<" else "&#91;", text)

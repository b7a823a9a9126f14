"""Text from people, pages, tools and models is data: it must not pass for our own marks.

A tag that we or a chat template give a meaning to loses it: its first character becomes `&lt;`
(or `&#91;`). Everything else stays as it was written.
"""

from __future__ import annotations

import re
from unicodedata import normalize

_TAGS = (
    "(?:earlier_|found_)?irc_logs|tool_results?|tool_responses?|tool_calls?|tools?"
    "|system|sys|think|thinking|thought|memory|topic"
    "|facts|own_facts|summary|episodes|notes|steps"  # sections of the prompt
    "|assistant|user|function(?:_calls?|s)?|invoke|parameter"  # roles, calls
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
    rf"<(?=<?[\s/]{{0,9}}(?:{_TAGS})\b)"  # our own tags and those of tool templates, also doubled
    r"|<(?=[｜|][^<>]{1,60}[｜|]>)"  # <|im_start|> and its like
    rf"|<(?=\|(?:{_HALVED})>|(?:{_HALVED})\|>)"  # <|turn> ... <turn|>; <|bob> may be a nick
    rf"|<(?=/?(?:{_CONTROL})>)"
    rf"|\[(?=/?(?-i:{_BRACKETED})\])",
    re.IGNORECASE,
)

_INVISIBLE = re.compile(  # what nobody sees
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]"
)
_DISGUISE = re.compile(f"{_INVISIBLE.pattern}|[\ufe64\ufe65\uff00-\uff5e]")
_ANGLE = re.compile("[<\uff1c\ufe64\\[\uff3b]")
_LONGEST_TAG = 120


def escape_tags(text: str) -> str:
    """`text` with every reserved tag made harmless. Idempotent.

    A tag in disguise counts as well: with characters that nobody sees, or in full width.
    """
    text = _RESERVED.sub(_escape, text)
    return _ANGLE.sub(_escape_disguised, text) if _DISGUISE.search(text) else text


def _escape(match: re.Match[str]) -> str:
    return "&#91;" if match[0] in "[\uff3b" else "&lt;"


def _escape_disguised(match: re.Match[str]) -> str:
    ahead = match.string[match.start() : match.start() + _LONGEST_TAG]
    plain = normalize("NFKC", _INVISIBLE.sub("", ahead))
    return _escape(match) if _RESERVED.match(plain) else match[0]

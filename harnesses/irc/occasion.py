"""What the model is told when it is run unasked: why, and that it may stay silent."""

from __future__ import annotations

from collections.abc import Mapping

from llm.attention.kind import Kind

NOBODY = "nobody"
"""Who asks, when nobody does."""

_SILENT = ' If there is nothing useful to say, answer only {"response": ""}; that is often best.'

_PASSING = (
    "%s did not ask you, but named you in passing: %s\nSay something only if it helps." + _SILENT
)

_OCCASIONS: Mapping[Kind, str] = {
    Kind.THOUGHT: "A while ago you had a conversation with %s here. If something of it was left"
    " open, say in one sentence what is worth adding, or ask how it went.",
    Kind.PRESSURE: "Several of your conversations here have ended without a result. If you can help"
    " somebody on, say so in one sentence.",
    Kind.SILENCE: "A lively talk here has suddenly ended. If a question in it was left open that"
    " you can answer, answer it in a sentence or two.",
    Kind.CONTACT: "Nobody has answered the question that %s asked all a few minutes ago. If you"
    " know the answer, give it in a sentence or two.",
}
_EVENT = "Something has happened that may concern this channel. If people here should know, say so."


def passing_mention(nick: str, text: str) -> str:
    """Tell the model that somebody has spoken of it, and not to it."""
    return _PASSING % (nick, text)


def occasion(kind: Kind, nick: str) -> str:
    """Why the model is run; `nick` is whom it is about."""
    words = _OCCASIONS.get(kind, _EVENT)
    return (words % nick if "%s" in words else words) + _SILENT

"""Prompts that ask the model to speak unasked, or to stay silent."""

from __future__ import annotations

_SILENT = ' If there is nothing useful to say, answer only {"response": ""}; that is often best.'

_PASSING = (
    "%s did not ask you, but named you in passing: %s\nSay something only if it helps." + _SILENT
)
_FOLLOW_UP = (
    "A while ago you had a conversation with %s here. If something of it was left open, say in one"
    " sentence what is worth adding, or ask how it went." + _SILENT
)
_UNANSWERED = (
    "Nobody has answered the question that %s asked all a few minutes ago. If you know the answer,"
    " give it in a sentence or two." + _SILENT
)


def passing_mention(nick: str, text: str) -> str:
    """Return the prompt for a line in which `nick` mentioned the bot without addressing it."""
    return _PASSING % (nick, text)


def follow_up(nick: str) -> str:
    """Return the prompt to follow up on an earlier conversation with `nick`."""
    return _FOLLOW_UP % nick


def unanswered_question(nick: str) -> str:
    """Return the prompt about a question by `nick` that nobody has answered."""
    return _UNANSWERED % nick

"""Prompts that ask the model to speak unasked, or to stay silent."""

from __future__ import annotations

_SILENT = ' If there is nothing useful to say, answer only {"response": ""}; that is often best.'


def passing_mention(nick: str, text: str) -> str:
    """Return the prompt for a line in which `nick` mentioned the bot without addressing it."""
    said = f"{nick} did not ask you, but named you in passing: {text}"
    return f"{said}\nSay something only if it helps.{_SILENT}"


def follow_up(nick: str) -> str:
    """Return the prompt to follow up on an earlier conversation with `nick`."""
    return (
        f"A while ago you had a conversation with {nick} here. If something of it was left open,"
        f" say in one sentence what is worth adding, or ask how it went.{_SILENT}"
    )


def unanswered_question(nick: str) -> str:
    """Return the prompt about a question by `nick` that nobody has answered."""
    return (
        f"Nobody has answered the question that {nick} asked all a few minutes ago. If you know"
        f" the answer, give it in a sentence or two.{_SILENT}"
    )

"""Error numerics that refuse a JOIN or a message of ours."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.message import Message
from harnesses.irc.session import channel_joins
from harnesses.irc.session.state import ATTACHED_MARK, ConnectionState, Handler

log = structlog.get_logger()

_TALK = ("401", "404", "407", "408", "415", "486", "494", "531", "716")
"""Numerics that normally refuse a PRIVMSG or NOTICE: no such nick, moderated or banned, too many
targets, colours, a recipient who accepts no messages from strangers."""


def on_refused(state: ConnectionState, message: Message) -> list[IrcEvent]:
    """Handle an error numeric about a channel or a person.

    About a person, or a channel that we are in, it refuses a message; otherwise it refuses a JOIN.
    """
    # A numeric does not say which command it answers, and some, such as 407 and 477, answer both.
    target = message.param(1)
    if not state.isupport.channel_of(target) or state.roster.channel(target):
        return _not_said(state, message)
    if message.command in _TALK and not state.is_desired(target):
        return _not_said(state, message)
    return channel_joins.on_refused(state, message)


def _not_said(state: ConnectionState, message: Message) -> list[IrcEvent]:
    if "label" not in message.tags:  # with a label, `ReceiptTracker.on_message` has recorded it
        state.receipts.on_refused(state.isupport.fold(message.param(1)), message.param(-1))
    return []


def _answered(state: ConnectionState, message: Message) -> list[IrcEvent]:
    state.receipts.on_pong(message.param(-1))
    if message.param(-1) == ATTACHED_MARK:
        state.is_attaching = False
    return []


HANDLERS: Mapping[str, Handler] = {
    "PONG": _answered,
    **dict.fromkeys(_TALK, on_refused),
    **dict.fromkeys(channel_joins.REASONS, on_refused),
}

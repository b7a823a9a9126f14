"""Channels that do not let us in, that we are sent to, and that we are invited to."""

from __future__ import annotations

import re
from collections.abc import Mapping

import structlog

from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.message import Message
from harnesses.irc.session.state import ConnectionState, Handler, JoinRefusal

log = structlog.get_logger()

ASK_AGAIN_FIRST, ASK_AGAIN_LONGEST = 60.0, 1800.0
"""Seconds before we knock again at a channel that does not let us in, and the longest such wait."""

_NAME = re.compile(r"[#&+!][^\s,\x00-\x1f]{0,199}")

REASONS = {
    "403": "there is no such channel",
    "405": "we are on too many channels",
    "407": "the server takes no such target",
    "437": "it cannot be joined at the moment",
    "470": "it forwards us to another channel",
    "471": "it is full",
    "473": "it is for invited people only",
    "474": "we are banned",
    "475": "the key is wrong, or we have none",
    "476": "the server takes no such name",
    "477": "it is for people who are logged in to services",
    "479": "the server takes no such name, or keeps it closed",
    "480": "too many people join, or the server keeps it closed",
    "485": "the server keeps it closed",
    "489": "it is for encrypted connections only",
    "495": "it cannot be joined again so soon",
    "500": "too many people join",
    "519": "it is for administrators of the server only",
    "520": "it is for operators of the server only",
    "524": "it is in quarantine",
}
"""Refusals of JOIN by their numeric; the servers do not agree on those from 477 upwards."""


def on_refused(state: ConnectionState, message: Message) -> list[IrcEvent]:
    """Take note that a channel does not let us in, and knock again later, each time more slowly."""
    name = message.param(1)
    if state.roster.channel(name) or not state.is_desired(name):
        return []
    key, numeric = state.isupport.fold(name), message.command
    before = state.refusals.get(key)
    attempts = before.attempts + 1 if before else 1
    pause = min(ASK_AGAIN_FIRST * 2 ** min(attempts - 1, 10), ASK_AGAIN_LONGEST)
    reason = REASONS.get(numeric, "the server refuses")
    if not before or before.numeric != numeric or pause != ASK_AGAIN_LONGEST:
        log.warning(
            "irc.join_refused",
            network=state.network,
            channel=name,
            numeric=numeric,
            reason=reason,
            retry_in=pause,
        )
    state.refusals[key] = JoinRefusal(name, numeric, reason, attempts, state.now(), pause)
    state.join(name, pause)
    return []


def is_uninvited(state: ConnectionState, name: str) -> bool:
    """Return whether we came to a channel without wanting it: forwarded (470), or by SAJOIN.

    A bouncer joins us to its own channels when it takes us over; those we leave as they are.
    """
    asked = state.isupport.fold(name) in state.asked_channels
    return not (asked or state.is_desired(name) or state.capabilities.of_bouncer)


def _invited(state: ConnectionState, message: Message) -> list[IrcEvent]:
    """Take `INVITE nick channel`: a channel that we want to be in is joined at once, whoever says
    so; about any other the tendril decides."""
    name = message.param(1)
    if not state.is_me(message.param(0)) or not _NAME.fullmatch(name):
        return []  # invite-notify tells of others; or it is nonsense
    if state.batch_type(message) or state.roster.channel(name):
        return []
    if state.is_desired(name):
        state.join(name)
        return []
    return [state.event("INVITE", message, name, message.param(0))]


HANDLERS: Mapping[str, Handler] = {"INVITE": _invited}

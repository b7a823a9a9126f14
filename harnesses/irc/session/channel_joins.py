"""Refused JOINs, channels that we are forced into, and invitations."""

from __future__ import annotations

import re
from collections.abc import Mapping

import structlog

from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.message import Message
from harnesses.irc.session.state import ConnectionState, Handler, JoinRefusal

log = structlog.get_logger()

RETRY_FIRST, RETRY_MAX = 60.0, 1800.0
"""Seconds before a refused JOIN is tried again: the first wait and the longest."""

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
"""Reasons of a refused JOIN by numeric, for people. From 477 on servers disagree on the meaning."""


def on_refused(state: ConnectionState, message: Message) -> list[IrcEvent]:
    """Record that a desired channel refuses us, and retry the JOIN with exponential backoff."""
    name = message.param(1)
    if state.roster.channel(name) or not state.is_desired(name):
        return []
    key, numeric = state.isupport.fold(name), message.command
    before = state.refusals.get(key)
    attempts = before.attempts + 1 if before else 1
    pause = min(RETRY_FIRST * 2 ** min(attempts - 1, 10), RETRY_MAX)
    reason = REASONS.get(numeric, "the server refuses")
    # Once the longest pause is reached, retries with the same result are not logged again.
    if not before or before.numeric != numeric or pause != RETRY_MAX:
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
    """Return whether we were put into a channel unasked, by a forward (470) or by SAJOIN.

    Channels of a bouncer never count: it has joined them itself and announces them when we connect.
    """
    asked = state.isupport.fold(name) in state.asked_channels
    return not (asked or state.is_desired(name) or state.capabilities.of_bouncer)


def _invited(state: ConnectionState, message: Message) -> list[IrcEvent]:
    """Handle `INVITE nick channel`: join a desired channel at once, whoever invites us.

    For any other channel return an event, so that the tendril decides.
    """
    name = message.param(1)
    if not state.is_me(message.param(0)) or not _NAME.fullmatch(name):
        return []  # an invitation of somebody else (invite-notify), or an invalid name
    if state.batch_type(message) or state.roster.channel(name):
        return []
    if state.is_desired(name):
        state.join(name)
        return []
    return [state.event("INVITE", message, name, message.param(0))]


HANDLERS: Mapping[str, Handler] = {"INVITE": _invited}

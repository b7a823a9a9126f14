"""What is said and set: messages, CTCP, modes, topics, batches."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from harnesses.irc.protocol.events import EventType, IrcEvent
from harnesses.irc.protocol.message import Message
from harnesses.irc.session.state import PAST, ConnectionState, Handler

CTCP_EVERY = 2.0
"""Seconds between two CTCP answers; what comes faster is not answered."""

_UNSENDABLE = str.maketrans("", "", "\0\r\n\x01")


def _talk(state: ConnectionState, message: Message) -> list[IrcEvent]:
    target, text = message.param(0), message.param(1)
    kind: EventType = "NOTICE" if message.command == "NOTICE" else "PRIVMSG"
    if text.startswith("\x01"):
        # https://modern.ircdocs.horse/ctcp: the closing \x01 may be missing
        word, _, rest = text.strip("\x01").partition(" ")
        if word.upper() != "ACTION":
            _ctcp(state, message, word.upper(), rest)
            return []
        kind, text = "ACTION", rest
    if not state.registered:
        return []  # "*** Looking up your hostname"
    event = state.event(kind, message, state.isupport.channel_of(target), target, text)
    if event.own and state.isupport.fold(target) == "nickserv":
        return []  # an echo of what we told services, which may be a password
    return [event]


def _ctcp(state: ConnectionState, message: Message, word: str, rest: str) -> None:
    answers = {"VERSION": f"Terrarium {version('terrarium')}", "PING": rest}
    last, now = state.ctcp_answered, state.now()
    if message.command == "NOTICE" or not message.source or word not in answers:
        return
    if state.is_me(message.source.nick):
        return
    if state.batch_type(message) or (last and (now - last).total_seconds() < CTCP_EVERY):
        return
    state.ctcp_answered = now
    answer = f"{word} {answers[word]}".translate(_UNSENDABLE).strip()
    state.send("NOTICE", message.source.nick, f"\x01{answer}\x01")


def _mode(state: ConnectionState, message: Message) -> list[IrcEvent]:
    name = state.isupport.channel_of(message.param(0))
    text = " ".join(message.params[1:])
    for letter, nick, on in state.isupport.mode_changes(message.params[1:]) if name else ():
        if name and letter in state.isupport.prefix.values():
            state.roster.change_mode(name, nick, letter, on=on)
    return [state.event("MODE", message, name, name, text)] if name else []


def _topic(state: ConnectionState, message: Message) -> list[IrcEvent]:
    name, text = message.param(0), message.param(1)
    _set_topic(state, name, text)
    return [state.event("TOPIC", message, name, name, text)]


def _topic_is(state: ConnectionState, message: Message) -> list[IrcEvent]:
    _set_topic(state, message.param(1), message.param(2))
    return []


def _set_topic(state: ConnectionState, name: str, text: str) -> None:
    if channel := state.roster.channel(name):
        channel.topic = text


def _batch(state: ConnectionState, message: Message) -> list[IrcEvent]:
    reference = message.param(0)
    if reference.startswith("+"):
        outer = state.batch_type(message)
        state.batches[reference[1:]] = outer if outer in PAST else message.param(1)
    else:
        state.batches.pop(reference[1:], None)
    return []


HANDLERS: Mapping[str, Handler] = {
    "PRIVMSG": _talk,
    "NOTICE": _talk,
    "MODE": _mode,
    "TOPIC": _topic,
    "332": _topic_is,
    "BATCH": _batch,
}

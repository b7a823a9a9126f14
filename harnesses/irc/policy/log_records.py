"""Log records of IRC events, and the scopes and names that belong to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime

from harnesses.irc.protocol.events import IrcEvent
from storage.chat_log.event import Event, EventType, Place, Scope


def place_of(event: IrcEvent) -> Place:
    """Return the channel of an event, or the person at the other end of a private conversation."""
    return Place(event.network, event.channel or (event.target if event.own else event.nick))


def conversation_id(place: Place, nick: str, fold: Callable[[str], str]) -> str:
    """Return the name of the conversation of a person in a place.

    Everybody has one of their own on each channel, so that nobody waits for another's answer, and
    nobody else's `clear` ends it. What others ask there is in the log lines that the model sees.
    """
    room, person = channel_key(place, fold), fold(nick)
    return room if fold(place.channel) == person else f"{room}/{person}"


def belongs_to(conversation: str, network: str, person: str) -> bool:
    """Return whether a conversation is one with a person, whose name is folded, on a network."""
    return conversation.startswith(f"{network}/") and conversation.endswith(f"/{person}")


def channel_key(place: Place, fold: Callable[[str], str]) -> str:
    """Return the name of what all conversations in a place have in common."""
    return f"{place.network}/{fold(place.channel)}"


def to_log_event(event: IrcEvent) -> Event:
    """Return the event as the log keeps it."""
    renamed = event.type == "NICK"
    return Event(
        network=event.network,
        channel=place_of(event).channel,
        private=event.channel is None,
        type=EventType(event.type),
        time=event.time,
        nick=event.nick,
        user=event.user or "",
        host=event.host or "",
        account=event.account,
        target=event.text if renamed else event.target if event.type == "KICK" else "",
        text="" if renamed else event.text,
        msgid=event.msgid,
        own=event.own,
    )


def split_lines(event: Event) -> list[Event]:
    """Return the event once for each line that was said."""
    return [replace(event, text=line) for line in event.text.split("\n")]


def bot_event(
    place: Place,
    nick: str,
    text: str,
    *,
    private: bool,
    kind: EventType = EventType.PRIVMSG,
) -> Event:
    """Return a line of our own, as it went out."""
    return Event(
        network=place.network,
        channel=place.channel,
        private=private,
        type=kind,
        time=datetime.now(UTC),
        nick=nick,
        text=text,
        own=True,
    )


def scope_of(place: Place, groups: Iterable[Iterable[str]]) -> Scope:
    """Return what may be read from `place`: itself, and the channels of its groups.

    Groups name "network/#channel", or "#channel" on any network.
    """
    places = {place}
    for group in groups:
        named = [_place(name, place.network) for name in group]
        if any(_same(place, member) for member in named):
            places.update(named)
    return Scope(frozenset(places))


def _place(name: str, network: str) -> Place:
    before, slash, channel = name.partition("/")
    return Place(before, channel) if slash else Place(network, before)


def _same(one: Place, other: Place) -> bool:
    return one.network == other.network and one.channel.lower() == other.channel.lower()

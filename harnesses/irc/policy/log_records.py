"""Log records of IRC events, and the scopes and names that belong to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from harnesses.irc.protocol.events import IrcEvent
from storage.chat_log.event import (
    Event,
    EventType,
    Identity,
    Place,
    Scope,
    channel_of_room,
    is_private,
    status_room,
)

_ESCAPED = str.maketrans({"/": "%2F", "%": "%25"})


def status_of(event: IrcEvent) -> str:
    """Return the STATUSMSG symbols of words that only a part of the channel is to read, as "@"."""
    if event.channel is None or event.type not in ("PRIVMSG", "NOTICE", "ACTION"):
        return ""
    return event.target[: -len(event.channel)]


def is_public(event: IrcEvent) -> bool:
    """Return whether an event is one of a whole channel."""
    return event.channel is not None and not status_of(event)


def place_of(event: IrcEvent, other: Identity, fold: Callable[[str], str]) -> Place:
    """Return the channel of an event, or the private room of the `other` side."""
    if event.channel is None:
        return Place(event.network, other.room(fold))
    if status := status_of(event):
        return Place(event.network, status_room(status, event.channel))
    return Place(event.network, event.channel)


def conversation_id(place: Place, nick: str, fold: Callable[[str], str]) -> str:
    """Return the name of the conversation of a person in a place.

    Everybody has one of their own on each channel, so that nobody waits for another's answer, and
    nobody else's `clear` ends it. What others ask there is in the log lines that the model sees.
    """
    return f"{channel_key(place, fold)}/{fold(nick)}"


def belongs_to(conversation: str, network: str, who: Identity, fold: Callable[[str], str]) -> bool:
    """Return whether a conversation is one with a person on a network, private or on a channel."""
    if conversation == channel_key(Place(network, who.room(fold)), fold):
        return True
    return conversation.startswith(f"{network}/") and (
        conversation.removeprefix(f"{network}/").partition("/")[2] == fold(who.name)
    )


def channel_key(place: Place, fold: Callable[[str], str]) -> str:
    """Return the name of what all conversations in a place have in common; a slash in the name of
    the place is escaped, so that no room has the name of a conversation in another."""
    is_personal = channel_of_room(place.channel) == place.channel and not is_channel(place)
    name = place.channel if is_personal else fold(place.channel)
    return f"{place.network}/{name.translate(_ESCAPED)}"


def to_log_event(event: IrcEvent, place: Place) -> Event:
    """Return the event as the log keeps it, in the place where it happened."""
    renamed = event.type == "NICK"
    return Event(
        network=event.network,
        channel=place.channel,
        type=EventType(event.type),
        time=event.time,
        nick=event.nick,
        user=event.user or "",
        host=event.host or "",
        account=event.account,
        target=event.text if renamed else event.target if event.type == "KICK" else "",
        text="" if renamed else without_key(event.text) if event.type == "MODE" else event.text,
        msgid=event.msgid,
        own=event.own,
    )


def without_key(modes: str) -> str:
    """Return a change of modes without the key of the channel: as which parameter belongs to which
    letter is the server's own affair, all of them are left out beside a `k`."""
    letters, *parameters = modes.split() or [""]
    return " ".join([letters, *("*" for _ in parameters)]) if "k" in letters else modes


def bot_event(
    place: Place,
    nick: str,
    text: str,
    kind: EventType = EventType.PRIVMSG,
) -> Event:
    """Return a line of our own, as it went out."""
    return Event(
        network=place.network,
        channel=place.channel,
        type=kind,
        time=datetime.now(UTC),
        nick=nick,
        text=text,
        own=True,
    )


def scope_of(place: Place, groups: Iterable[Iterable[str]]) -> Scope:
    """Return what may be read from `place`: itself, and the channels of its groups.

    Groups name "network/#channel", or "#channel" on any network; no private place is in one.
    """
    places = {place}
    for group in groups if is_channel(place) else ():
        named = [_place(name, place.network) for name in group]
        if any(_same(place, member) for member in named):
            places.update(filter(is_channel, named))
    return Scope(frozenset(places))


def is_channel(place: Place) -> bool:
    """Return whether a place is a channel, and no private one."""
    return not is_private(place.channel)


def _place(name: str, network: str) -> Place:
    before, slash, channel = name.partition("/")
    return Place(before, channel) if slash else Place(network, before)


def _same(one: Place, other: Place) -> bool:
    return one.network == other.network and one.channel.lower() == other.channel.lower()

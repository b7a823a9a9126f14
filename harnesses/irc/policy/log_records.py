"""Conversion of IRC events to log records, and the names and scopes of their places."""

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
    """Return the STATUSMSG symbols of a message to part of a channel, as "@" for `@#c`; else ""."""
    if event.channel is None or event.type not in ("PRIVMSG", "NOTICE", "ACTION"):
        return ""
    # The target is the name of the channel behind the symbols.
    return event.target[: -len(event.channel)]


def is_public(event: IrcEvent) -> bool:
    """Return whether an event is visible to a whole channel."""
    return event.channel is not None and not status_of(event)


def place_of(event: IrcEvent, other: Identity, fold: Callable[[str], str]) -> Place:
    """Return the place of an event: its channel, its status room, or `other`'s private room."""
    if event.channel is None:
        return Place(event.network, other.room(fold))
    if status := status_of(event):
        return Place(event.network, status_room(status, event.channel))
    return Place(event.network, event.channel)


def conversation_id(place: Place, nick: str, fold: Callable[[str], str]) -> str:
    """Return the name of a person's conversation in a place.

    On a channel each person has a separate one, so that nobody waits for another's answer and each
    can `clear` it alone. The model sees what others ask there in the log lines of its prompt.
    """
    return f"{room_key(place, fold)}/{fold(nick)}"


def belongs_to(conversation: str, network: str, who: Identity, fold: Callable[[str], str]) -> bool:
    """Return whether a conversation is with a given person, privately or on any channel."""
    if conversation == room_key(Place(network, who.room(fold)), fold):
        return True
    # Slashes in the place are escaped, so whatever follows the next slash is the folded name.
    return conversation.startswith(f"{network}/") and (
        conversation.removeprefix(f"{network}/").partition("/")[2] == fold(who.name)
    )


def room_key(place: Place, fold: Callable[[str], str]) -> str:
    """Return the key that all conversations in a place share, `network/place`.

    Slashes in the place are escaped: otherwise the channel "#a/bob" would have the name of bob's
    conversation on "#a".
    """
    # `Identity.room` has folded the name of a private room already, part by part.
    is_personal = channel_of_room(place.channel) == place.channel and not is_channel(place)
    name = place.channel if is_personal else fold(place.channel)
    return f"{place.network}/{name.translate(_ESCAPED)}"


def to_log_event(event: IrcEvent, place: Place) -> Event:
    """Convert an IRC event to a log event of `place`; the parameters of key changes are masked."""
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
    """Mask all parameters of a mode change with "*" if it sets or removes a channel key (`k`).

    Which parameter belongs to which letter depends on the server's CHANMODES.
    """
    letters, *parameters = modes.split() or [""]
    return " ".join([letters, *("*" for _ in parameters)]) if "k" in letters else modes


def bot_event(
    place: Place,
    nick: str,
    text: str,
    kind: EventType = EventType.PRIVMSG,
) -> Event:
    """Return the log event of a line of our own that was sent just now."""
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
    """Return the scope of readers in `place`: the place itself, and the channels of its groups.

    Groups name "network/#channel", or "#channel" on the network of `place`. Private places belong
    to no group, even if one names them.
    """
    places = {place}
    for group in groups if is_channel(place) else ():
        named = [_place(name, place.network) for name in group]
        if any(_same(place, member) for member in named):
            places.update(filter(is_channel, named))
    return Scope(frozenset(places))


def is_channel(place: Place) -> bool:
    """Return whether a place is a channel: neither a private conversation nor a status room."""
    return not is_private(place.channel)


def _place(name: str, network: str) -> Place:
    before, slash, channel = name.partition("/")
    return Place(before, channel) if slash else Place(network, before)


def _same(one: Place, other: Place) -> bool:
    return one.network == other.network and one.channel.lower() == other.channel.lower()

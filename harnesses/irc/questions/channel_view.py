"""The view of a channel in a turn: log window, log tools, members, values of the persona; the
people of reminders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harnesses.core.addresses import short_link
from harnesses.core.services.reminders import Requester
from harnesses.core.services.shared_log import whole_answers
from harnesses.irc.requests import (
    IrcRequest,
    identity_of,
    is_person,
    room_key,
    without_highlight,
)
from harnesses.irc.services import BotServices
from harnesses.irc.transport.network import Network
from llm.answerers.answerers import RoomView
from llm.log_questions import Quoting
from llm.prompt.log_window import LogWindow
from llm.tools.log_search import LogTools, Present
from storage.chat_log.event import Event, Identity, PendingEvent, Place, Scope
from storage.chat_log.event_table import id_at
from storage.passages.passages import LineFilter
from storage.queues.reminders import Owner

_OPERATOR = frozenset("oaq")  # modes of operators, admins and founders


def question_window(services: BotServices, request: IrcRequest) -> LogWindow:
    """Return the log window of a question, with what is needed to answer it by quoting lines."""
    event = request.pending_event.event
    asked = event.time if event else services.resources.clock.now()
    return replace(
        window_before(services, request.place, id_at(asked)),
        speaker=request.nick,
        pending_event=request.pending_event,
        people=request.network.roster.nicks(request.place.channel),
        retrieval=services.medium.log.retrieval,
    )


def window_before(services: BotServices, place: Place, anchor: int) -> LogWindow:
    """Return the log window before the event id `anchor`, for an unasked turn."""

    def link(event: Event) -> str | None:
        address = None if event.private else services.web_address
        return f"{address}{short_link(event)}" if address else None

    return LogWindow(
        log=services.log,
        place=place,
        anchor=anchor,
        last=services.live.resolve(place).max_context_messages,
        starts=services.window_starts,
        # Quoted lines are in our time zone, with a link if people can open it, and with nicks that
        # highlight nobody.
        quoting=Quoting(services.resources.configuration.agent.zone, link, without_highlight),
        line_filter=_quotable_lines(services, place),
    )


def readable_scope(services: BotServices, request: IrcRequest) -> Scope:
    """Return what the author of a question may read: in private also the channels that they are on
    now, where they could ask as well."""
    network, who = request.network, request.who
    places = set(request.scope.places or ())
    for channel in network.roster.channels if request.private else ():
        place, member = Place(network.name, channel), network.roster.member(channel, who.nick)
        # From another host, somebody else may have taken the nick.
        is_there = member is not None and (member.host or who.host) == who.host
        if is_there and services.live.resolve(place).logging:
            places |= services.scope_of(place).places or set()
    return Scope(frozenset(places))


def log_tools(
    services: BotServices, place: Place, scope: Scope, before: PendingEvent | int
) -> LogTools:
    """Return the tools over `scope` for a question in a place, limited to what is `before` an
    event."""
    networks = services.networks

    async def answers(events: Sequence[Event]) -> Mapping[int, str]:
        known = [event for event in events if event.network in networks]
        return await whole_answers(
            services.resources.conversations,
            lambda place: room_key(place, networks[place.network].fold),
            known,
        )

    return replace(
        services.medium.log.tools_within(scope),
        before=before,
        line_filter=_quotable_lines(services, place),
        present=present_in(services, scope),
        answers=answers,
    )


def present_in(services: BotServices, scope: Scope) -> Present:
    """Return the function that tells who is on the channels of a scope now."""

    def present() -> dict[Place, list[str]]:
        return {
            place: network.roster.nicks(channel)
            for network in services.networks.values()
            for channel in network.roster.channels
            if scope.covers(place := Place(network.name, channel)) and network.reaches(channel)
        }

    return present


def _quotable_lines(services: BotServices, place: Place) -> LineFilter:
    """Return a filter for quotable lines: neither commands nor addressed to the bot."""
    nick = services.networks[place.network].nick
    return LineFilter(prefix=services.prefix(place), nicks=(nick,))


async def other_requester(
    services: BotServices, request: IrcRequest, nick: str
) -> Requester | None:
    """Return somebody who is on the channel of a request, as the requester of a reminder there;
    None if they are not, or want nothing to be kept of them."""
    network, fold = request.network, request.network.fold
    member = None if request.private else network.roster.member(request.place.channel, nick)
    if member and not member.host:  # here since before we came, and silent
        member = await network.whois(member.nick)
    who = identity_of(member) if member else None
    if who is None or not is_person(who, fold) or fold(who.nick) == fold(network.nick):
        return None
    if services.hides(network, who):
        return None
    owner = Owner(network.name, who.nick, who.user, who.host, who.account)
    person = services.policy.key_of_person(network, who)
    return replace(request.requester, owner=owner, person=person, is_admin=False)


async def find_owner(network: Network, owner: Owner) -> Identity | None:
    """Return the current identity of a reminder's owner; None while they are not on the network.

    An owner with a services account is recognised by it, under any nick. One without needs the same
    nick, user name and host: a nick alone can be taken by anybody.
    """

    def is_owner(who: Identity) -> bool:
        if owner.account:
            return who.account is not None and fold(who.account) == fold(owner.account)
        ours = Identity(owner.nick, owner.user, owner.host)
        return replace(who, account=None).room(fold) == ours.room(fold)

    fold = network.fold
    for who in map(identity_of, network.roster.people()):
        if is_owner(who):
            return who
    member = await network.whois(owner.nick)
    who_now = identity_of(member) if member else None
    return who_now if who_now and is_owner(who_now) else None


def room_view(network: Network, channel: str) -> RoomView | None:
    """Return who is on a channel now, and its topic; None in private."""
    members = network.roster.nicks(channel)
    if not members:
        return None
    found = {nick: network.roster.member(channel, nick) for nick in members}
    operators = [nick for nick, member in found.items() if member and _OPERATOR & member.modes]
    return RoomView(members, operators, network.roster.topic(channel), without_highlight)


def persona_values(
    network: Network, channel: str, prefix: str, *, private: bool = False
) -> Mapping[str, str]:
    """Return the values of the `$names` in a persona, for a channel or a private conversation in
    which commands begin with `prefix`."""
    abilities = (
        f"People can also give you commands, which you are not asked about: {prefix}remind,"
        f" {prefix}schedule, {prefix}search, {prefix}more for the rest of a long answer,"
        f" {prefix}clear, {prefix}nolog and {prefix}forget me for what is kept of them, and"
        f" {prefix}help for all."
    )
    shown = "as plain text: use no Markdown but fences around code."
    values = {"nick": network.nick, "abilities": abilities}
    if private:
        values["display"] = f"Your words are shown {shown}"
        place = (
            "IRC, in a private conversation. You do not see channels from here: your tools list,"
            " search and read those that this person may read"
        )
        return values | {"place": place, "channel": "a private conversation", "topic": ""}
    values["display"] = (
        'People see your words after the name of whoever asked ("bob: your words"), so begin with'
        f" the matter and not with a name. They are shown {shown}"
    )
    topic = network.roster.topic(channel)
    return values | {"place": f"the IRC channel {channel}", "channel": channel, "topic": topic}

"""The view of a channel in a turn: log window, log tools, members, values of the persona."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harnesses.core.permalinks import short_link
from harnesses.core.services.shared_log import whole_answers
from harnesses.irc.policy.requests import IrcRequest, room_key, scope_of, without_highlight
from harnesses.irc.services import BotServices
from harnesses.irc.transport.network import Network
from llm.answerers.answerers import RoomView
from llm.log_questions import Quoting
from llm.prompt.log_window import LogWindow, WindowStarts
from llm.tools.log_search import LogTools, Present
from storage.chat_log.event import Event, PendingEvent, Place, Scope
from storage.chat_log.event_table import id_at
from storage.passages.passages import LineFilter

_OPERATOR = frozenset("oaq")  # modes of operators, admins and founders


class LogViews:
    """The factory of log windows and log tools for turns."""

    def __init__(self, services: BotServices) -> None:
        self._services = services
        self._starts: WindowStarts = {}

    def for_question(self, request: IrcRequest) -> LogWindow:
        """Return the log window of a question, with what is needed to answer it by quoting
        lines."""
        event = request.pending_event.event
        asked = event.time if event else self._services.resources.clock.now()
        return replace(
            self.before(request.place, id_at(asked)),
            speaker=request.nick,
            pending_event=request.pending_event,
            people=request.network.roster.nicks(request.place.channel),
            retrieval=self._services.medium.log.retrieval,
        )

    def before(self, place: Place, anchor: int) -> LogWindow:
        """Return the log window before the event id `anchor`, for an unasked turn."""
        services = self._services

        def link(event: Event) -> str | None:
            address = None if event.private else services.web_address
            return f"{address}{short_link(event)}" if address else None

        return LogWindow(
            log=services.log,
            place=place,
            anchor=anchor,
            last=services.behaviours.resolve(place).max_context_messages,
            starts=self._starts,
            # Quoted lines are in our time zone, with a link if people can open it, and with nicks
            # that highlight nobody.
            quoting=Quoting(services.resources.configuration.agent.zone, link, without_highlight),
            line_filter=self._quotable_lines(place),
        )

    def readable_scope(self, request: IrcRequest) -> Scope:
        """Return what the author of a question may read: in private also the channels that they are
        on now, where they could ask as well."""
        services, network, who = self._services, request.network, request.who
        groups = services.networks.settings.channel_groups
        places = set(request.scope.places or ())
        for channel in network.roster.channels if request.private else ():
            place, member = Place(network.name, channel), network.roster.member(channel, who.nick)
            # From another host, somebody else may have taken the nick.
            is_there = member is not None and (member.host or who.host) == who.host
            if is_there and services.behaviours.resolve(place).logging:
                places |= scope_of(place, groups).places or set()
        return Scope(frozenset(places))

    def tools(self, place: Place, scope: Scope, before: PendingEvent | int) -> LogTools:
        """Return the tools over `scope` for a question in a place, limited to what is `before` an
        event."""
        networks, conversations = self._services.networks, self._services.resources.conversations

        def room(place: Place) -> str:
            return room_key(place, networks[place.network].fold)

        async def answers(events: Sequence[Event]) -> Mapping[int, str]:
            known = [event for event in events if event.network in networks]
            return await whole_answers(conversations, room, known)

        return replace(
            self._services.medium.log.tools_within(scope),
            before=before,
            line_filter=self._quotable_lines(place),
            present=self.present_in(scope),
            answers=answers,
        )

    def present_in(self, scope: Scope) -> Present:
        """Return the function that tells who is on the channels of a scope now."""

        def present() -> dict[Place, list[str]]:
            return {
                place: network.roster.nicks(channel)
                for network in self._services.networks.values()
                for channel in network.roster.channels
                if scope.covers(place := Place(network.name, channel)) and network.reaches(channel)
            }

        return present

    def _quotable_lines(self, place: Place) -> LineFilter:
        """Return a filter for quotable lines: neither commands nor addressed to the bot."""
        nick = self._services.networks[place.network].nick
        prefix = self._services.behaviours.resolve(place).command_prefix
        return LineFilter(prefix=prefix, nicks=(nick,))


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

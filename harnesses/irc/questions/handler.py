"""Questions to the model: limits per person, the turn, progress notices, streaming, delivery.

`StreamingReply` sends the first line of an answer while the model is still writing it.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from textwrap import shorten

from harnesses.core.commands.request import (
    TOO_MANY,
    ConcurrencyLimit,
    FindCommand,
    Medium,
    ParsedCommand,
    PrivateReply,
    Reply,
)
from harnesses.core.services.question_tools import Door, PasteTools
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from harnesses.irc.operators import OPERATE, ChannelOperator
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.message import sanitize
from harnesses.irc.questions.channel_view import (
    log_tools,
    other_requester,
    persona_values,
    question_window,
    readable_scope,
    room_view,
)
from harnesses.irc.questions.unasked import UnaskedAnswers
from harnesses.irc.requests import (
    IrcRequest,
    fold_place,
    identity_of,
    matches_any,
    payer_of,
    person_key,
    room_key,
    without_highlight,
)
from harnesses.irc.sender import LATE_AFTER, MessageSender, OutgoingLine, Target, may_change
from harnesses.irc.services import BotServices
from llm.prompt.log_window import LogWindow
from llm.skills.registry import TEACH
from storage.chat_log.event import Identity, PendingEvent, Place, Scope

STILL_AT_IT = "still working on it, one moment."
"""The line that says so, while no tool says what is being done."""

TYPING_AFTER, TYPING_INTERVAL = 1.0, 3.0
"""Seconds until the first typing notification, and between two of them: clients show one for six
seconds (https://ircv3.net/specs/client-tags/typing)."""

_SPLIT = re.compile(r"\S+\.\S+ \S+\.\S+")  # the reason of a netsplit: the names of two servers
_MAX_ACTIVITY, _MAX_NAMED = 120, 48  # characters


class StreamingReply:
    """A reply that takes the pieces of an answer as the model writes them, then the whole answer.

    Once the model has been writing for `stream_after` seconds, the first line is sent as soon as
    the second has begun; all others are sent at the end. `is_late` tells whether the person could
    not know which question is answered, so that the answer has to name the `question`.
    """

    def __init__(
        self,
        sender: MessageSender,
        target: Target,
        stream_after: float,
        question: str,
        is_late: Callable[[StreamingReply], bool],
    ) -> None:
        self._sender, self._target = sender, target
        self._clock = asyncio.get_running_loop().time
        self._after, self._question, self._is_late = stream_after, question, is_late
        self._text = ""
        self._began = 0.0
        self._first: OutgoingLine | None = None

    @property
    def has_begun(self) -> bool:
        """True once a line has been sent."""
        return self._first is not None

    @property
    def nick(self) -> str:
        """The nick of the person who asked, as they are called now."""
        return self._target.nick

    def rename(self, nick: str) -> None:
        """Address the lines still to be sent to the person under their new nick."""
        recipient = nick if self._target.is_direct else self._target.recipient
        self._target = replace(self._target, nick=nick, recipient=recipient)

    async def on_text(self, text: str) -> None:
        """Append a piece of what the model writes; an empty one discards all pieces before it."""
        if not text:
            self._text = ""
        if not self._text:
            self._began = self._clock()
        self._text += text
        if self.has_begun or self._clock() - self._began < self._after:
            return
        self._name_question()
        # The first line is complete once a second one has begun. Code is for the link.
        answer = self._sender.compose(self._target, self._text)
        if len(answer.lines) < 2 or not answer.opening or may_change(answer.lines[0].text):
            return
        if await self._sender.send_lines(self._target, answer.lines[:1]):
            self._first = answer.lines[0]
            self._sender.streaming[self] = self._target.place

    async def finish(self, result: TurnResult) -> bool:
        """Deliver the lines of the answer not sent yet, as `MessageSender.deliver` does; return
        whether the person has all of it."""
        # What code has answered may quote people, and is no Markdown.
        is_markdown = result.iterations > 0
        if not self.has_begun:
            self._name_question()
        answer = self._sender.compose(self._target, result.text, is_markdown=is_markdown)
        # If the whole answer begins otherwise than what was streamed, all of it is sent.
        already = int(list(answer.lines[:1]) == [self._first])
        target = replace(self._target, quotes=result.quotes)
        # It is written now: `.more` may be asked for before its last line has arrived.
        self._sender.streaming.pop(self, None)
        return not answer.lines or await self._sender.deliver(target, answer, already)

    def _name_question(self) -> None:
        shown = shorten(self._question, _MAX_NAMED, placeholder=" …")
        self._target = replace(self._target, about=shown if self._is_late(self) else "")


class IrcMedium(Medium[IrcRequest]):
    """IRC as its commands see it, which puts the questions of all people on all networks."""

    def __init__(self, services: BotServices, unasked: UnaskedAnswers) -> None:
        self._services, self._unasked = services, unasked
        self._concurrency, self._progress = ConcurrencyLimit(), ProgressSigns(services)
        self._open: dict[StreamingReply, IrcRequest] = {}
        # The questions of each conversation with an open one, in order; one that is answered while
        # an earlier one still waits makes that one late.
        self._asked: dict[str, list[StreamingReply]] = {}

    @property
    def tendril(self) -> Tendril:
        """The tendril."""
        return self._services.tendril

    def follow(self, event: IrcEvent) -> None:
        """Drop the questions of somebody who has left, and answer who has changed nick by the new
        one. After a netsplit people come back, so their questions stay."""
        network = self._services.networks[event.network]
        leaver = network.fold(event.target if event.type == "KICK" else event.nick)
        if event.type == "QUIT" and _SPLIT.fullmatch(event.text):
            return
        for reply, request in list(self._open.items()):
            if request.network is not network or network.fold(reply.nick) != leaver:
                continue
            is_there = network.fold(request.place.channel) == network.fold(event.channel or "")
            if event.type == "NICK":
                reply.rename(event.text)
            elif event.type == "QUIT" or is_there:
                self._services.turns.stop(request.conversation)

    def stop(self, request: IrcRequest, nick: str = "") -> bool:
        """Stop what the author of a request, or `nick`, has asked in its place; return whether
        there was anything."""
        names = {request.conversation}
        if nick:
            fold = request.network.fold
            names = {
                each.conversation
                for reply, each in self._open.items()
                if fold(reply.nick) == fold(nick) and each.place == request.place
            }
        stopped = [self._services.turns.stop(name) for name in names]
        return any(stopped)

    async def ask(self, request: IrcRequest, command: FindCommand) -> Reply:
        """Run the turn of a question, which delivers the answer itself, or the `command` that it
        asks for in plain words; return a refusal or ""."""
        services = self._services
        person = person_key(request)
        if self._concurrency.is_full(person):
            # At most once a minute.
            return PrivateReply(TOO_MANY) if services.policy.should_notify(request) else ""
        with self._concurrency.hold(person):
            target = services.sender.target_of(request)
            clock, conversation = services.resources.clock, request.conversation
            since, stream_after = clock.now(), services.networks.settings.stream_after

            def is_late(reply: StreamingReply) -> bool:
                is_last = self._asked[conversation][-1] is reply
                return not is_last or clock.now() - since > LATE_AFTER

            reply = StreamingReply(services.sender, target, stream_after, request.words, is_late)

            async def deliver(result: TurnResult) -> bool:
                services.policy.note_reply(request.network, request.who.name)
                # Whoever reads the answer must find its question in the log.
                await request.pending_event.wait_visible()
                return await reply.finish(result)

            window, line = question_window(services, request), request.pending_event
            self._open[reply] = request
            self._asked.setdefault(conversation, []).append(reply)
            try:
                with self._progress.shown(target, reply) as on_activity:
                    result = await services.turns.take(
                        replace(
                            self.turn_request(request, window, line),
                            command=command,
                            room_view=room_view(request.network, request.place.channel),
                            joins=True,  # a follow-up may join the question being answered
                            on_text=reply.on_text,
                            on_activity=on_activity,
                            deliver=deliver,
                        )
                    )
                if not result.ok:
                    self._asked[conversation].remove(reply)  # it has joined another, or was stopped
            finally:
                del self._open[reply]
                if not self._open.keys() & self._asked[conversation]:
                    del self._asked[conversation]
        return ""

    def turn_request(
        self, request: IrcRequest, log_window: LogWindow, before: PendingEvent | int
    ) -> TurnRequest:
        """Return the turn of a question, with tools over the log `before` a line; where nothing is
        logged, without the window and those tools."""
        services, network = self._services, request.network
        behaviour, channel = services.live.resolve(request.place), request.place.channel

        def rights() -> Collection[str]:  # evaluated at each call of a tool
            if not services.policy.is_admin(network, request.who):
                return ()
            return {TEACH, OPERATE} if services.networks.settings.admin_tools else {TEACH}

        return TurnRequest(
            conversation=request.conversation,
            who=request.nick,
            person=request.person,
            budget_owner=payer_of(network, request.who),
            text=request.words,
            room=room_key(request.place, network.fold),
            log_window=log_window if behaviour.logging else None,
            tools=self._tools(request, before, logs=behaviour.logging),
            rights=rights,
            values=persona_values(
                network, channel, behaviour.command_prefix, private=request.private
            ),
            persona=behaviour.persona,
            model=request.model or behaviour.model,
            private=request.private,
            keeps=request.pending_event.event is not None,  # not logged, so not remembered
            origin=replace(request.origin, scope=self.readable_scope(request)),
        )

    def _tools(
        self, request: IrcRequest, before: PendingEvent | int, *, logs: bool
    ) -> list[object]:
        """Return the tools for the author; with `logs`, those over the log read what was said
        `before` a line.

        The list is the same for all authors in a place.
        """
        services, place = self._services, request.place
        settings, question = services.networks.settings, request.pending_event
        lifetime = timedelta(hours=settings.paste_hours)
        scope = self.readable_scope(request) if logs else Scope.from_places()
        address = functools.cache(lambda: services.web_address)
        pastes = PasteTools(
            services.sender.pastes, place, request.nick, lifetime, address, question
        )
        door = Door(  # the tools of every tendril; those of IRC alone follow
            log=log_tools(services, place, scope, before),
            address=address,
            requester=request.requester,
            find_other=functools.partial(other_requester, services, request),
            may_schedule=not request.who.bridged,
            room=room_key(place, request.network.fold),
            who=request.nick,
            pastes=pastes,
        )
        tools = services.tools_for(door)
        if settings.admin_tools and request.network.is_operator(place.channel):
            tools.append(ChannelOperator(request, services.audit))
        return tools

    async def reply(self, request: IrcRequest, reply: Reply) -> None:
        """Deliver a reply to the author of a request, unless it is empty."""
        await self._services.sender.reply(request, reply)

    def prefix(self, place: Place) -> str:
        """Return what commands begin with in a place."""
        return self._services.prefix(place)

    def nicks(self, request: IrcRequest) -> Sequence[str]:
        """Return our nicks on the network of a request, the present one first."""
        return request.network.nick, request.network.settings.nick

    def parse(self, text: str, nicks: Sequence[str], request: IrcRequest) -> ParsedCommand | None:
        """Parse what was said in the place of a request, without its colour codes."""
        return super().parse(sanitize(text), nicks, request)

    def shown_nick(self, nick: str) -> str:
        """Return a nick as it is shown without calling its owner."""
        return without_highlight(nick)

    def is_bridged(self, request: IrcRequest, who: Identity) -> bool:
        """Return whether somebody has the mask of a relay, or shares user name and host with one
        that is here."""
        network, relays = request.network, self._services.networks.settings.relays
        near = map(identity_of, network.roster.people())
        return any(
            matches_any(each, relays, network.fold)
            for each in (who, *near)
            if (each.user, each.host) == (who.user, who.host)
        )

    def members(self, request: IrcRequest) -> Sequence[str]:
        """Return the nicks of those in the place of a request, none in private."""
        if request.private and not request.network.is_channel(request.place.channel):
            return ()
        return request.network.roster.nicks(request.place.channel)

    def readable_scope(self, request: IrcRequest) -> Scope:
        """Return what the author of a request may read: in private also their channels."""
        return readable_scope(self._services, request)

    def model(self, request: IrcRequest) -> str:
        """Return the name of the model in the place of a request."""
        return self._services.live.resolve(request.place).model

    def persona(self, request: IrcRequest) -> str | None:
        """Return the name of the persona there, None for that of the tendril."""
        return self._services.live.resolve(request.place).persona

    def keeps(self, request: IrcRequest) -> bool:
        """Return whether anything of a request may be remembered."""
        # Without an event on a logged channel the line itself was not kept, as with "[nolog]".
        logs = self._services.live.resolve(request.place).logging
        is_kept_out = logs and request.pending_event.event is None
        return not (self._services.hides(request.network, request.who) or is_kept_out)

    @property
    def web_address(self) -> str | None:
        """The base URL of the web pages for people on these networks; None while they have none."""
        return self._services.web_address

    def payer(self, request: IrcRequest) -> str:
        """Return the name under which what an author asks is counted."""
        return payer_of(request.network, request.who)

    async def clear(self, request: IrcRequest) -> int:
        """Delete the author's conversation, and forget their open question to everybody."""
        place = fold_place(request.network, request.place.channel)
        self._unasked.attention.drop(place, request.fold(request.nick))
        return await super().clear(request)

    async def more(self, request: IrcRequest) -> Reply:
        """Send the rest of a long answer, or return what there is to say instead."""
        sender = self._services.sender
        if request.place in sender.streaming.values():
            return PrivateReply("The answer is still being written; ask again when it is finished.")
        if await sender.send_more(sender.target_of(request)):
            return ""
        return await super().more(request)


@dataclass(slots=True)
class _Episode:
    """The time in which questions are open in one place: how many, what is being done for them, and
    what has been shown of that."""

    open: int = 0
    activity: str = ""
    is_told: bool = False
    has_typed: bool = False
    typing: asyncio.TimerHandle | None = None


class ProgressSigns:
    """The signs in all places, until the last question open there is answered.

    They are typing notifications where the network passes those on. Elsewhere one line tells all
    who wait, once the first of them has waited for `progress_after` seconds. It is not logged: it
    says nothing that anybody may want to read later, and least of all a model.
    """

    def __init__(self, services: BotServices) -> None:
        self._services = services
        self._episodes: dict[tuple[str, str], _Episode] = {}

    @contextmanager
    def shown(self, target: Target, reply: StreamingReply) -> Iterator[Callable[[str], None]]:
        """Within the context, show that `reply` is on its way to `target`; yield the function that
        takes what is being done for it, in words."""
        network, recipient = target.network, target.recipient
        key = network.name, network.fold(recipient)
        episode = self._episodes.setdefault(key, _Episode())
        loop = asyncio.get_running_loop()

        def note(activity: str) -> None:
            episode.activity = activity

        def type_on() -> None:
            network.show_typing(recipient, "active")
            episode.has_typed = True
            episode.typing = loop.call_later(TYPING_INTERVAL, type_on)

        def tell() -> None:
            if not (episode.is_told or reply.has_begun or network.shows_typing):
                episode.is_told = True
                activity = episode.activity[:_MAX_ACTIVITY]
                words = f"{activity} ..." if activity else STILL_AT_IT
                addressee = target.nick if target.is_direct else ""  # it is for all who wait
                to_all = replace(target, nick=addressee, answers=None, logged=False)
                self._services.spawn(self._services.sender.say(to_all, words.replace("\n", " ")))

        if not episode.open:
            episode.typing = loop.call_later(TYPING_AFTER, type_on)
        episode.open += 1
        telling = loop.call_later(self._services.networks.settings.progress_after, tell)
        try:
            yield note
        finally:
            telling.cancel()
            episode.open -= 1
            if not episode.open:
                del self._episodes[key]
                if episode.typing:
                    episode.typing.cancel()
                if episode.has_typed:
                    network.show_typing(recipient, "done")

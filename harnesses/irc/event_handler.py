"""The handler of IRC events: logs each in order of arrival, then runs the command in it, if any."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

import structlog

from harnesses.core.tendril.turn import TurnResult
from harnesses.irc.commands.privacy import UNLOGGED
from harnesses.irc.commands.registry import OPERATOR_COMMANDS, Commands
from harnesses.irc.playback import PlaybackLog
from harnesses.irc.policy.requests import (
    Command,
    CommandRequest,
    Decision,
    ParsedCommand,
    PrivateReply,
    is_public,
    to_log_event,
)
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.questions.channel_view import LogViews
from harnesses.irc.questions.handler import RATE_LIMITED, QuestionHandler
from harnesses.irc.questions.page_titles import PageTitles
from harnesses.irc.questions.proactive import ProactiveSpeech
from harnesses.irc.questions.scheduled import ScheduledQuestions
from harnesses.irc.services import BotServices
from harnesses.irc.transport.network import Network
from storage.chat_log.event import Event, Place

NOT_LOGGED = (
    "My disk takes nothing at the moment: what is said now waits in memory until there is room, and"
    " I learn nothing. Please tell whoever runs me."
)
_WARN_INTERVAL = 600.0  # seconds

MAX_KICKS, KICKS_WINDOW = 3, 3600.0
"""Kicks from a channel within `KICKS_WINDOW` seconds after which we stay away."""

_log = structlog.get_logger()


class EventHandler:
    """The dispatcher of IRC events to the log, `commands`, questions and unasked speech."""

    def __init__(self, services: BotServices) -> None:
        self._services = services
        log_views = LogViews(services)
        self._warned: dict[tuple[str, str], float] = {}
        self._playback = PlaybackLog(services.medium.log, services.networks)
        self._kick_counter = KickCounter(asyncio.get_running_loop().time)
        self.proactive = ProactiveSpeech(services, log_views)
        self._questions = QuestionHandler(services, log_views, self.proactive)
        self._titles = PageTitles(services)
        self._scheduled = ScheduledQuestions(services, self._questions)
        self.commands = Commands(services, self._questions, self.proactive)

    async def prepare(self) -> None:
        """Restore the state that survives a restart. Raises StorageError."""
        await self.proactive.prepare()
        await self._playback.prepare()

    def background(self) -> list[Coroutine[Any, Any, None]]:
        """Return the background tasks of event handling, which run until cancelled."""
        return [
            self._services.medium.remind.run_questions(self._scheduled.ask),
            self.proactive.scheduler.run(),
            self._playback.run(),
        ]

    def on_event(self, event: IrcEvent, *, answers: bool = True) -> None:
        """Log an event, and run the command or question in it unless `answers` is False.

        Called synchronously, in the order of arrival: only queues and spawns, never waits.
        """
        services = self._services
        network, policy = services.networks[event.network], services.policy
        if event.type == "INVITE":
            services.spawn(self.commands.follow_invite(network, event))
            return
        event, who = policy.speaker(network, event)
        place = policy.place(network, event, who)
        behaviour = services.behaviours.resolve(place)
        # Parsed before logging, as some commands must not be logged; and once per event, as
        # `take_trigger` also feeds the detector of bot loops.
        asked = policy.take_trigger(network, event, who, behaviour.command_prefix)
        line = to_log_event(event, place)
        if event.batch_type:
            self._on_past_event(network, event, line)
            return
        may_log = behaviour.logging and not (asked and _is_secret(asked))
        # What may not be logged is queued without its event: a question still needs its position,
        # which tells the lines before it from those after it.
        first = services.medium.log.write(line, may_log=may_log)
        if event.type == "KICK" and network.fold(event.target) == network.fold(network.nick):
            self._on_kick(network, event.channel or "")
        # Titles and unasked speech use only logged lines: an opt-out holds for them as well.
        is_read = (
            bool(first.event)
            and _is_said_to_all(event)
            and policy.should_process(network, event, who)
        )
        if is_read and (behaviour.proactive != "off" or behaviour.titles):
            request = policy.request(network, event, who, event.text, first)
            if behaviour.proactive != "off":
                self.proactive.on_message(request, asked=asked is not None)
            if behaviour.titles and asked is None:
                self._titles.on_message(request)
        if asked and answers:
            self._carry_out(asked, policy.request(network, event, who, asked.words, first))

    def _on_past_event(self, network: Network, event: IrcEvent, line: Event) -> None:
        """Log a line that is never answered: a replayed one, or one beyond the limits of a
        multiline message. The rules of what is logged are those for live lines."""
        behaviour = self._services.behaviours.resolve(Place(line.network, line.channel))
        prefix = behaviour.command_prefix
        asked = self._services.policy.parse_words(network, event, prefix)
        is_own_data = asked is not None and asked.command in UNLOGGED
        if behaviour.logging and not is_own_data:
            self._playback.add(line)

    def _carry_out(self, asked: ParsedCommand, request: CommandRequest) -> None:
        """Run a known command. To one that other bots have for channel operators, such as `kick`,
        reply how to ask us for that instead, at most once a minute per person."""
        command = self.commands.known.get(asked.command)
        is_operators = command is None and asked.command in OPERATOR_COMMANDS
        if is_operators and self._services.policy.should_explain(request):
            command = self.commands.operators_only
        if command:
            self.answer(command, request)

    def answer(self, command: Command, request: CommandRequest) -> None:
        """Run a command in the background, unless it exceeds a rate limit."""
        services = self._services
        match services.policy.decide(request):
            case Decision.YES:
                services.spawn(self._run(command, request))
            case Decision.TELL:
                services.spawn(services.sender.reply(request, PrivateReply(RATE_LIMITED)))

    async def _run(self, command: Command, request: CommandRequest) -> None:
        async def execute() -> TurnResult:
            return TurnResult(await command(request))

        result = await self._services.turns.catch_errors(execute)
        await self._services.sender.reply(request, result.text)
        self._services.policy.note_reply(request)
        if self._services.log.trouble and self._may_warn(request):
            await self._services.sender.reply(request, PrivateReply(NOT_LOGGED))

    def _may_warn(self, request: CommandRequest) -> bool:
        """Return True at most once in ten minutes for each person."""
        now, network = asyncio.get_running_loop().time(), request.network
        person = network.name, network.fold(request.who.name)
        self._warned = {
            who: time for who, time in self._warned.items() if now - time < _WARN_INTERVAL
        }
        return self._warned.setdefault(person, now) == now

    def _on_kick(self, network: Network, channel: str) -> None:
        place = Place(network.name, network.fold(channel))
        self._services.spawn(self.proactive.mute(place))
        if self._kick_counter.record_and_check(place):
            _log.warning("irc.kicked_for_good", network=network.name, channel=channel)
            network.part(channel)  # no longer wanted: this cancels the rejoin


class KickCounter:
    """The recent kicks from each channel. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: dict[Hashable, list[float]] = {}

    def record_and_check(self, place: Hashable) -> bool:
        """Record a kick; return True if there were too many to come back."""
        now = self._clock()
        times = [time for time in self._times.get(place, ()) if now - time < KICKS_WINDOW]
        self._times[place] = [*times, now]
        return len(self._times[place]) >= MAX_KICKS


def _is_secret(asked: ParsedCommand) -> bool:
    """Return whether a command is about the person's own data, or contains a channel key."""
    return asked.command in UNLOGGED or (asked.command == "join" and " " in asked.words.strip())


def _is_said_to_all(event: IrcEvent) -> bool:
    return is_public(event) and event.type in ("PRIVMSG", "ACTION")

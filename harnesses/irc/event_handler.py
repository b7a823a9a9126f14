"""The handler of IRC events: logs each in order of arrival, then runs the command in it, if any."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Coroutine
from typing import Any

import structlog

from harnesses.core.commands.request import (
    RATE_LIMITED,
    UNLOGGED,
    Command,
    ParsedCommand,
    PrivateReply,
)
from harnesses.core.commands.table import CommandTable, commands_of
from harnesses.irc.admin import AdminCommands, follow_invite
from harnesses.irc.operators import OperatorCommands
from harnesses.irc.playback import PlaybackLog
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.questions.handler import IrcMedium
from harnesses.irc.questions.page_titles import PageTitles
from harnesses.irc.questions.scheduled import ask_scheduled
from harnesses.irc.questions.unasked import UnaskedAnswers
from harnesses.irc.requests import (
    IrcRequest,
    fold_place,
    is_said_to_all,
    person_key,
    to_log_event,
)
from harnesses.irc.services import BotServices
from storage.chat_log.event import Place

NOT_LOGGED = (
    "I cannot write to my disk at the moment. New lines wait in memory until I can, and I remember"
    " nothing new. Please tell my operator."
)
_WARN_INTERVAL = 600.0  # seconds

MAX_KICKS, KICKS_WINDOW = 3, 3600.0
"""Kicks from a channel within `KICKS_WINDOW` seconds after which we stay away."""

TOO_FAST = (
    "You answer faster than anybody can type, so I take you for a bot. I will listen again after a"
    " minute of silence, or to a command with the prefix."
)

_log = structlog.get_logger()


class Commands(CommandTable[IrcRequest]):
    """The commands on IRC: those of every medium, and those of admins.

    `of_operators` are those of them that channel operators have with other bots too.
    """

    def __init__(self, medium: IrcMedium, services: BotServices, unasked: UnaskedAnswers) -> None:
        operators = commands_of(OperatorCommands(services))
        self.of_operators = operators.keys()
        super().__init__(medium, commands_of(AdminCommands(services, unasked)) | operators)


class EventHandler:
    """The dispatcher of IRC events to the log, `commands`, questions and unasked speech."""

    def __init__(self, services: BotServices) -> None:
        self._services = services
        self._warned: dict[tuple[str, str], float] = {}
        self._playback = PlaybackLog(services.medium.log, services.networks)
        self._kicks: dict[Place, deque[float]] = {}
        self.unasked = UnaskedAnswers(services)
        self._medium = IrcMedium(services, self.unasked)
        self._titles = PageTitles(services)
        self.commands = Commands(self._medium, services, self.unasked)

    async def prepare(self) -> None:
        """Restore the state that survives a restart. Raises StorageError."""
        await self.unasked.prepare()
        await self.commands.tells.load()
        await self._playback.prepare()

    def background(self) -> list[Coroutine[Any, Any, None]]:
        """Return the background tasks of event handling, which run until cancelled."""
        ask = functools.partial(ask_scheduled, self._services, self._medium)
        return [
            self._services.medium.remind.run_questions(ask),
            self.unasked.attention.run(),
            self._playback.run(),
        ]

    def on_event(self, event: IrcEvent, *, answers: bool = True) -> None:
        """Log an event, and run the command or question in it unless `answers` is False.

        Called synchronously, in the order of arrival: only queues and spawns, never waits.
        """
        services = self._services
        network, policy = services.networks.get(event.network), services.policy
        if network is None:
            return  # it is no longer configured
        network.lines += 1
        if event.type == "INVITE":
            services.spawn(follow_invite(services, network, event))
            return
        heard = policy.hear(network, event)
        if event.type == "REDACT":
            services.spawn(services.medium.privacy.redact(heard.place, event.text))
            return
        behaviour = services.live.resolve(heard.place)
        if event.batch_type:
            # A line that is never answered: a replayed one, or one beyond the limits of a multiline
            # message. The rules of what is logged are those for live lines.
            asked = policy.parse_words(heard, behaviour.command_prefix)
            if behaviour.logging and not (asked and asked.command in UNLOGGED):
                self._playback.add(to_log_event(heard.event, heard.place))
            return
        # Parsed before logging, as some commands must not be logged; and once per event, as
        # `take_trigger` also feeds the detector of bot loops.
        asked = policy.take_trigger(heard, behaviour.command_prefix)
        # Neither commands about the person's own data are logged, nor a channel's key.
        is_join_with_key = asked and asked.command == "join" and " " in asked.words
        is_secret = is_join_with_key or (asked and asked.command in UNLOGGED)
        may_log = behaviour.logging and not is_secret
        # What may not be logged is queued without its event: a question still needs its position,
        # which tells the lines before it from those after it.
        first = services.medium.log.write(to_log_event(heard.event, heard.place), may_log=may_log)
        if event.type in ("PART", "QUIT", "KICK", "NICK"):
            self._medium.follow(event)
        if event.type == "KICK" and network.fold(event.target) == network.fold(network.nick):
            channel = event.channel or ""
            kicked_from = fold_place(network, channel)
            services.spawn(self.unasked.mute(kicked_from, muted=True))
            times = self._kicks.setdefault(kicked_from, deque(maxlen=MAX_KICKS))
            times.append(asyncio.get_running_loop().time())
            if len(times) == MAX_KICKS and times[-1] - times[0] < KICKS_WINDOW:
                _log.warning("irc.kicked_for_good", network=network.name, channel=channel)
                network.part(channel)  # no longer wanted: this cancels the rejoin
        # Titles and unasked speech use only logged lines: an opt-out holds for them as well.
        is_read = first.event and is_said_to_all(event) and policy.should_process(heard)
        if is_read and (behaviour.proactive != "off" or behaviour.titles):
            request = policy.request(heard, heard.event.text, first)
            if behaviour.proactive != "off":
                self.unasked.on_message(request, asked)
            if behaviour.titles and asked is None:
                self._titles.on_message(request)
        tells = self.commands.tells
        if (
            tells.awaited
            and event.type in ("PRIVMSG", "ACTION")
            and tells.is_awaited(heard.who, network.name)
            and policy.should_process(heard)
        ):
            services.spawn(tells.deliver(policy.request(heard, "", first)))
        if asked and answers:
            self._carry_out(asked, policy.request(heard, asked.words, first))

    def _carry_out(self, asked: ParsedCommand, request: IrcRequest) -> None:
        """Run a known command. Those of channel operators are other bots' as well: whoever may not
        give them is told so once a minute at most."""
        if asked.too_fast:
            self._slow_down(request, TOO_FAST)  # by a NOTICE, which bots never answer
            return
        found = self.commands.find(asked, request)
        if found is None:
            return
        is_refused = asked.command in self.commands.of_operators and not request.admin
        if not is_refused or self._services.policy.should_explain(request):
            self.answer(*found)

    def answer(self, command: Command[IrcRequest], request: IrcRequest) -> None:
        """Run a command in the background, unless it exceeds a rate limit."""
        services = self._services
        if services.policy.try_acquire(request):
            services.spawn(self._run(command, request))
        else:
            self._slow_down(request, RATE_LIMITED)

    def _slow_down(self, request: IrcRequest, text: str) -> None:
        """Tell somebody who writes too much, once a minute at most."""
        services = self._services
        if services.policy.should_notify(request):
            services.spawn(services.sender.reply(request, PrivateReply(text)))

    async def _run(self, command: Command[IrcRequest], request: IrcRequest) -> None:
        await self._medium.run(command, request)
        self._services.policy.note_reply(request.network, request.who.name)
        if not self._services.log.trouble:
            return
        # At most once in ten minutes for each person.
        now, person = asyncio.get_running_loop().time(), person_key(request)
        self._warned = {
            who: time for who, time in self._warned.items() if now - time < _WARN_INTERVAL
        }
        if self._warned.setdefault(person, now) == now:
            await self._services.sender.reply(request, PrivateReply(NOT_LOGGED))

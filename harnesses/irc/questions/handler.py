"""Questions to the model: who may ask now, what the model is shown, how the answer comes back."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from harnesses.core.tendril.turn_request import TurnRequest
from harnesses.core.tendril.turn_result import TurnResult
from harnesses.irc.channel_settings import ChannelBehaviour
from harnesses.irc.commands.reminders import ReminderTools
from harnesses.irc.policy.command_request import Command, CommandRequest, PrivateReply
from harnesses.irc.policy.log_records import channel_key, conversation_id
from harnesses.irc.policy.rate_limit import ConcurrencyLimit
from harnesses.irc.questions.proactive import persona_values
from harnesses.irc.questions.tools import OPERATE, AdminTools, ChannelTools
from harnesses.irc.replies.streaming_reply import StreamingReply
from llm.prompt.log_window import PROGRESS, LogWindow
from llm.skills.learned import TEACH, TeachingTools, is_lesson
from llm.threads.channel_threads import ChannelThreads
from llm.tools.log_search import LogTools
from storage.chat_log.event import Place
from storage.db.database import to_micros
from storage.db.errors import StorageError
from storage.passages.passages import LineFilter

if TYPE_CHECKING:
    from harnesses.irc.tendril import IrcTendril

SLOWLY = "Slowly, please: I hear you again when you have been quiet for a moment."

_FOLLOWED_EVERY = 0.5  # seconds

_log = structlog.get_logger()


class QuestionHandler:
    """The questions of all people on all networks."""

    def __init__(self, tendril: IrcTendril) -> None:
        self._tendril = tendril
        self._concurrency = ConcurrencyLimit()
        self._threads: dict[Place, ChannelThreads] = {}
        self._heard: set[Place] = set()

    async def ask(self, request: CommandRequest) -> str:
        """Answer a question; returns what else there is to say."""
        person = _person(request)
        if self._concurrency.is_full(person):
            return self._refusal(request)
        with self._concurrency.hold(person):
            target = self._tendril.target(request)
            loop = asyncio.get_running_loop()
            after = self._tendril.settings.stream_after
            reply = StreamingReply(self._tendril.sender, target, after, loop.time)
            with self._progress_notice(request, reply, person):
                await self._turn(request, reply)
        return ""

    async def run_in_order(self, request: CommandRequest, command: Command) -> str:
        """Run a command that was given in plain words, and reply, once the questions before it in
        the conversation are answered; returns what else there is to say."""
        person = _person(request)
        if self._concurrency.is_full(person):
            return self._refusal(request)

        queued = replace(request, queued=self._tendril.clock.now())

        async def execute() -> TurnResult:
            return TurnResult(await command(queued))

        async def reply() -> TurnResult:
            result = await self._tendril.catch_errors(execute)
            await self._tendril.reply_to(request, result.text)
            return result

        with self._concurrency.hold(person):
            await self._tendril.run_in_order(self.conversation(request), reply)
        return ""

    def _refusal(self, request: CommandRequest) -> str:
        """Return what somebody is told who has too many questions waiting."""
        return PrivateReply(SLOWLY) if self._tendril.policy.should_notify(request) else ""

    def note_activity(self, place: Place) -> None:
        """Something was said there."""
        if place in self._threads:
            self._heard.add(place)

    async def keep_threads_current(self) -> None:
        """Follow, for ever, the conversations where somebody has asked before: the next one who
        asks there need not wait for that."""
        while True:
            await asyncio.sleep(_FOLLOWED_EVERY)
            heard, self._heard = self._heard, set()
            for place in heard:
                try:
                    await self._threads[place].follow()
                except StorageError as error:  # who asks next tries again
                    _log.error("irc.not_followed", error=str(error))

    async def _turn(self, request: CommandRequest, reply: StreamingReply) -> None:
        tendril, network = self._tendril, request.network
        behaviour = tendril.behaviour(network, request.place)

        async def deliver(result: TurnResult) -> None:
            tendril.policy.note_reply(request)
            # whoever has the answer finds the question in the log
            await request.pending_event.wait_visible()
            await reply.finish(result)
            await tendril.proactive.on_answered(request, result)

        await tendril.turn(
            TurnRequest(
                conversation=self.conversation(request),
                who=request.nick,
                person=network.fold(request.who.name),
                text=request.words,
                room=channel_key(request.place, network.fold),
                log_window=self._view(request, behaviour) if behaviour.logging else None,
                tools=self._tools(request, behaviour),
                rights=functools.partial(self._rights, request),
                values=persona_values(network, request.place.channel, private=request.private),
                persona=behaviour.persona,
                model=behaviour.model,
                joins=True,
                wants_status=behaviour.proactive != "off" and not request.private,
                private=request.private,
                keeps=request.pending_event.event is not None or not behaviour.logging,
                on_text=reply.on_text,
                deliver=deliver,
            )
        )

    def _view(self, request: CommandRequest, behaviour: ChannelBehaviour) -> LogWindow:
        event = request.pending_event.event
        asked = event.time if event else datetime.now(UTC)
        return LogWindow(
            log=self._tendril.log,
            place=request.place,
            anchor=to_micros(asked) // 1000,  # ids of the log follow time
            last=behaviour.max_context_messages,
            speaker=request.nick,
            threads=None if request.private else self._threads_of(request.place),
            pending_event=request.pending_event,
            quoting=self._tendril.quoting(request),
            line_filter=self._quotable_lines(request, behaviour),
            people=request.network.members(request.place.channel),
            semantic_index=self._tendril.semantic_index,
        )

    def _quotable_lines(self, request: CommandRequest, behaviour: ChannelBehaviour) -> LineFilter:
        """The lines that may be an answer: no commands, and nothing said to the bot."""
        return LineFilter(prefix=behaviour.command_prefix, nicks=(request.network.nick,))

    def _tools(self, request: CommandRequest, behaviour: ChannelBehaviour) -> list[object]:
        """What the model may do for who asks; what few questions need is shown for those only, as
        its description costs tokens in every prompt."""
        tendril, network, rights = self._tendril, request.network, self._rights(request)
        tools: list[object] = []
        if behaviour.logging:
            tools.append(
                LogTools(
                    tendril.log,
                    request.scope,
                    request.pending_event,
                    tendril.semantic_index,
                    self._quotable_lines(request, behaviour),
                )
            )
        if "remind" in request.words.lower():
            tools.append(ReminderTools(tendril.reminder_service, request))
        if TEACH in rights and is_lesson(request.words):
            room, now = channel_key(request.place, network.fold), tendril.clock.now
            tools.append(TeachingTools(tendril.skills, room, request.nick, now))
        if not request.private:
            tools.append(ChannelTools(network, request.place.channel))
            if OPERATE in rights and network.is_operator(request.place.channel):
                tools.append(AdminTools(request, tendril.audit))
        return tools

    def _rights(self, request: CommandRequest) -> Collection[str]:
        """What the model may do, at this moment, in the name of who asks."""
        tendril = self._tendril
        if not tendril.policy.is_admin(request.network, request.who):
            return ()
        return {TEACH, OPERATE} if tendril.settings.admin_tools else {TEACH}

    def _threads_of(self, place: Place) -> ChannelThreads:
        if place not in self._threads:
            self._threads[place] = ChannelThreads(self._tendril.log, place)
        return self._threads[place]

    def conversation(self, request: CommandRequest, nick: str = "") -> str:
        """The conversation of whoever asks, or of `nick`, where `request` was given."""
        return conversation_id(request.place, nick or request.who.name, request.network.fold)

    @contextmanager
    def _progress_notice(
        self, request: CommandRequest, reply: StreamingReply, person: tuple[str, str]
    ) -> Iterator[None]:
        """A person who waits long is told, once, that the answer is on its way."""
        tendril = self._tendril

        def notify() -> None:
            if not reply.has_begun and self._concurrency.notify_once(person, PROGRESS):
                tendril.spawn(tendril.reply_to(request, PROGRESS))

        loop = asyncio.get_running_loop()
        telling = loop.call_later(tendril.settings.progress_after, notify)
        try:
            yield
        finally:
            telling.cancel()


def _person(request: CommandRequest) -> tuple[str, str]:
    """Return the network and the folded name of the person who asks."""
    return request.network.name, request.network.fold(request.who.name)

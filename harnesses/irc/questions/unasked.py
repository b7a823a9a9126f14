"""Unasked speech on IRC: answers to questions that nobody has answered.

The rule is in `harnesses.core.attention`.

Only on channels that are logged and whose `proactive` allows it; never in private. Lines of bots
and of people who have opted out do not get here. In test mode an answer is recorded, not said.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import structlog

from harnesses.core.attention import OpenQuestion, UnaskedSpeech, about_question
from harnesses.core.commands.request import QUESTION_COMMANDS, ParsedCommand
from harnesses.core.services.question_tools import Door
from harnesses.core.services.shared_log import LoggedLine
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from harnesses.irc.policy.requests import IrcRequest, fold_place, room_key, scope_of
from harnesses.irc.questions.channel_view import LogViews, persona_values
from harnesses.irc.replies.sender import strip_address, to_plain, with_mark
from harnesses.irc.services import BotServices
from harnesses.irc.transport.network import Network
from llm.messages.message import NO_ASKER
from storage.chat_log.event import Event, Identity, PendingEvent, Place
from storage.chat_log.event_table import id_at
from storage.queues.unasked import Silences

_log = structlog.get_logger()


class UnaskedAnswers:
    """Unasked speech on all networks. `speech` exists after `prepare`."""

    speech: UnaskedSpeech

    def __init__(self, services: BotServices, log_views: LogViews) -> None:
        self._services, self._log_views = services, log_views
        self._would_say: dict[Place, str] = {}  # the latest text of test mode, by channel

    async def prepare(self) -> None:
        """Restore the pauses of before a restart. Raises StorageError."""
        resources, turns = self._services.resources, self._services.turns

        async def ask_model(question: OpenQuestion) -> None:
            await turns.catch_errors(functools.partial(self._answer, question))

        self.speech = UnaskedSpeech(
            Silences(resources.database), resources.clock, resources.accounting.today, ask_model
        )
        await self.speech.restore()

    def admin_summary(self, place: Place) -> str:
        """Return the state of a folded place: whether a question is open, when the model was asked
        last, and the last test-mode text."""
        silence = self.speech.silence(place)
        parts = ["a question is open" if place in self.speech.open else "no question is open"]
        if silence.muted:
            parts.append("silent since a kick")
        elif silence.asked.year > 1970:  # else never
            parts.append(f"last looked at one at {silence.asked:%H:%M} UTC")
        if would := self._would_say.get(place):
            parts.append(f"would have said: {would}")
        return "; ".join(parts)

    def on_message(self, request: IrcRequest, asked: ParsedCommand | None) -> None:
        """Process a line on a channel where `proactive` is not off.

        The line is logged, and its author is one whom the policy answers. A command, `asked` of us,
        is neither a question to all nor a reply.
        """
        if asked and asked.command not in QUESTION_COMMANDS:
            return
        fold = request.network.fold
        line = LoggedLine(
            fold_place(request.network, request.place.channel),
            request.who,
            request.words,
            request.pending_event,
        )
        self.speech.on_line(line, asked=asked is not None, fold=fold)

    async def mute(self, place: Place, *, muted: bool) -> None:
        """Stop unasked speech in a place, after a kick, until an admin sets `proactive` there."""
        self._would_say.pop(place, None)
        await self.speech.mute(place, muted=muted)

    async def _answer(self, question: OpenQuestion) -> TurnResult:
        """Ask the model, and say its answer; do nothing if we or the asker have left the channel,
        `proactive` or logging is off by now, or the question may not be shown to a model."""
        services, place = self._services, question.place
        network = services.networks.get(place.network)
        behaviour = services.behaviours.resolve(place)
        if network is None or not network.roster.member(place.channel, question.nick):
            return TurnResult("")
        if not (network.reaches(place.channel) and behaviour.logging):
            return TurnResult("")
        asked = await question.event(services.log)
        if asked is None or behaviour.proactive == "off":
            return TurnResult("")
        room = room_key(place, network.fold)
        now = id_at(services.resources.clock.now())
        scope = scope_of(place, services.networks.settings.channel_groups)
        log_tools = self._log_views.tools(place, scope, now)

        async def deliver(result: TurnResult) -> bool:
            # An apology is not said: nobody has asked. Silence counts as delivered.
            return not (result.ok and result.text) or await self._say(network, place, asked, result)

        return await services.turns.take(
            TurnRequest(
                conversation=room,
                who=NO_ASKER,
                text=about_question(asked),
                person=services.policy.key_of_person(network, Identity.from_event(asked)),
                room=room,
                log_window=self._log_views.before(place, now),
                tools=services.tools_for(Door(log=log_tools, address=lambda: services.web_address)),
                values=persona_values(network, place.channel, behaviour.command_prefix),
                persona=behaviour.persona,
                model=behaviour.model,
                priority="background",
                trigger="proactive",
                keeps=False,
                deliver=deliver,
            )
        )

    async def _say(self, network: Network, place: Place, asked: Event, result: TurnResult) -> bool:
        """Say the answer, or record it in test mode; return whether that was done."""
        services = self._services
        answers = PendingEvent(asked)
        answers.mark_settled(asked.id)
        target = replace(
            services.sender.target(network, place),
            nick=asked.nick,
            answers=answers,
            quotes=result.quotes,
        )
        plain = strip_address(to_plain(result.text).strip(), target.nick)
        text = with_mark(plain, network.settings.mark)
        if services.behaviours.resolve(place).proactive == "test":
            self._would_say[place] = target.address + text
            _log.info("attention.would_say", channel=place.channel, text=target.address + text)
            return True
        said = await services.sender.say(target, text)
        if said:
            services.policy.note_reply(network, asked.nick)
            _log.info("attention.said", channel=place.channel, characters=len(text))
        return said

"""Unasked speech on IRC: what wakes the model there, and how it speaks.

Signals and the beat that weighs them are in `harnesses.core.attention`.

Only on channels that are logged and whose `proactive` allows it; never in private. Lines of bots
and of people who have opted out do not get here. In test mode an answer is recorded, not said.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import structlog

from harnesses.core.attention import Attention, Wake, about_reasons
from harnesses.core.commands.request import QUESTION_COMMANDS, ParsedCommand
from harnesses.core.services.question_tools import Door
from harnesses.core.services.shared_log import LoggedLine, is_public
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from harnesses.irc.questions.channel_view import log_tools, persona_values, window_before
from harnesses.irc.requests import IrcRequest, fold_place, room_key
from harnesses.irc.sender import strip_address, to_plain, with_mark
from harnesses.irc.services import BotServices
from harnesses.irc.transport.network import Network
from llm.messages.message import NO_ASKER
from storage.chat_log.event import Event, Identity, PendingEvent, Place
from storage.chat_log.event_table import id_at
from storage.queues.unasked import Signal

_log = structlog.get_logger()


class UnaskedAnswers:
    """Unasked speech on all networks. `attention` exists after `prepare`."""

    attention: Attention

    def __init__(self, services: BotServices) -> None:
        self._services = services
        self._would_say: dict[Place, str] = {}  # the latest text of test mode, by channel

    async def prepare(self) -> None:
        """Restore the pauses of before a restart. Raises StorageError."""
        resources, turns = self._services.resources, self._services.turns

        async def wake(woken: Wake) -> TurnResult:
            return await turns.catch_errors(functools.partial(self._answer, woken))

        self.attention = Attention(
            resources.database,
            resources.clock,
            resources.accounting.fresh_today,
            lambda: resources.configuration.agent.signal_weights,
            wake,
            self._own,
        )
        await self.attention.restore()

    def admin_summary(self, place: Place) -> str:
        """Return the state of a folded place: whether a question is open, when the model was asked
        last, and the last test-mode text."""
        silence, is_waiting = self.attention.silence(place), self.attention.is_waiting(place)
        parts = ["a question is open" if is_waiting else "no question is open"]
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
        network = request.network
        place = fold_place(network, request.place.channel)
        line = LoggedLine(place, request.who, request.words, request.pending_event)
        nick = network.fold(network.nick)
        self.attention.on_line(line, asked=asked is not None, nick=nick, fold=network.fold)

    async def mute(self, place: Place, *, muted: bool) -> None:
        """Stop unasked speech in a place, after a kick, until an admin sets `proactive` there."""
        self._would_say.pop(place, None)
        if muted and self._services.live.resolve(place).proactive != "off":
            now = self._services.resources.clock.now()
            self.attention.feel(Signal(now, "error", place, "we were kicked"))
        await self.attention.mute(place, muted=muted)

    def _own(self, place: Place) -> Place | None:
        """Return a channel folded; None if we are not there or may not speak unasked."""
        network = self._services.networks.get(place.network)
        if network is None or not is_public(place) or not network.reaches(place.channel):
            return None
        behaviour = self._services.live.resolve(place)
        may = behaviour.logging and behaviour.proactive != "off"
        return fold_place(network, place.channel) if may else None

    async def _answer(self, woken: Wake) -> TurnResult:
        """Ask the model, and say its answer; do nothing if we or those who gave the reasons have
        left the channel, `proactive` or logging is off by now, or their lines may not be shown to a
        model."""
        services, place = self._services, woken.place
        network = services.networks.get(place.network)
        if network is None or not self._own(place):
            return TurnResult("")
        reasons = [
            (signal, line)
            for signal, line in await woken.reasons(services.log)
            if line is None or network.roster.member(place.channel, signal.nick or line.nick)
        ]
        if not reasons:
            return TurnResult("")
        behaviour = services.live.resolve(place)
        asked = next((line for _, line in reasons if line), None)
        room = room_key(place, network.fold)
        now = id_at(services.resources.clock.now())
        tools = log_tools(services, place, services.scope_of(place), now)

        async def deliver(result: TurnResult) -> bool:
            # An apology is not said: nobody has asked. Silence counts as delivered.
            return not (result.ok and result.text) or await self._say(network, place, asked, result)

        person = Identity.from_event(asked) if asked else Identity("")
        return await services.turns.take(
            TurnRequest(
                conversation=room,
                who=NO_ASKER,
                text=about_reasons(reasons),
                person=services.policy.key_of_person(network, person) if asked else "",
                room=room,
                log_window=window_before(services, place, now),
                tools=services.tools_for(Door(log=tools, address=lambda: services.web_address)),
                values=persona_values(network, place.channel, behaviour.command_prefix),
                persona=behaviour.persona,
                model=behaviour.model,
                priority="background",
                trigger="proactive",
                keeps=False,
                deliver=deliver,
            )
        )

    async def _say(
        self, network: Network, place: Place, asked: Event | None, result: TurnResult
    ) -> bool:
        """Say the answer, or record it in test mode; return whether that was done."""
        services = self._services
        target = replace(services.sender.target(network, place), quotes=result.quotes)
        if asked:
            answers = PendingEvent.stored(asked.id, asked)
            target = replace(target, nick=asked.nick, answers=answers)
        plain = strip_address(to_plain(result.text).strip(), target.nick)
        text = with_mark(plain, network.settings.mark)
        if services.live.resolve(place).proactive == "test":
            self._would_say[place] = target.address + text
            _log.info("attention.would_say", channel=place.channel, text=target.address + text)
            return True
        said = await services.sender.say(target, text)
        if said:
            self.attention.note_spoken(place)
            if asked:
                services.policy.note_reply(network, asked.nick)
            _log.info("attention.said", channel=place.channel, characters=len(text))
        return said

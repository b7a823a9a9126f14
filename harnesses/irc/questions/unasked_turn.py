"""Unasked turns: each trigger of the scheduler becomes a turn of the model.

The model is told why it runs, and that it may stay silent. In test mode its answer is recorded
instead of said.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog

from harnesses.core.services.question_tools import Door
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from harnesses.irc.policy.requests import conversation_id, room_key, scope_of
from harnesses.irc.questions.channel_view import LogViews, persona_values
from harnesses.irc.replies.sender import Target, strip_address, to_plain, with_mark
from harnesses.irc.services import BotServices
from harnesses.irc.transport.network import Network
from llm.attention.attention import Trigger, TriggerKind
from llm.attention.prompts import follow_up, passing_mention, unanswered_question
from llm.messages.message import NO_ASKER
from storage.chat_log.event import Event, PendingEvent, Place, Scope
from storage.chat_log.event_table import Query
from storage.db.database import to_micros

_NOTHING = TurnResult("")

_log = structlog.get_logger()


FollowUp = Callable[[Trigger, TurnResult], Awaitable[None]]
"""Schedules the follow-up to a turn about a person's line, if the result calls for one."""


class UnaskedTurns:
    """The runner of turns for triggers; `would_say` is the last test-mode text of each channel."""

    def __init__(self, services: BotServices, log_views: LogViews, follow_up: FollowUp) -> None:
        self._services, self._log_views, self._follow_up = services, log_views, follow_up
        self.would_say: dict[Place, str] = {}

    async def run(self, trigger: Trigger) -> TurnResult:
        """Run the model for `trigger` and say its answer.

        The result is empty if the trigger no longer holds: we or the person have left the channel,
        `proactive` or logging is off by now, or the line may not be shown to a model any more.
        """
        place, network = trigger.place, self._services.networks.get(trigger.place.network)
        if network is None or not network.reaches(place.channel):
            return _NOTHING
        behaviour = self._services.behaviours.resolve(place)
        if behaviour.proactive == "off" or not behaviour.logging:
            return _NOTHING
        is_follow_up = trigger.kind is TriggerKind.THOUGHT
        if is_follow_up and not network.roster.member(place.channel, trigger.person):
            return _NOTHING
        line = await self._line(trigger) if trigger.event_id else None
        if trigger.event_id and line is None:
            return _NOTHING
        # A follow-up does not answer the line again; it only requires that the line still exists.
        said = None if is_follow_up else line
        return await self._turn(trigger, network, said, is_test=behaviour.proactive == "test")

    async def _line(self, trigger: Trigger) -> Event | None:
        """Return the line that the trigger is about, unless it was erased or its author has opted
        out."""
        query = Query(
            scope=Scope.from_places(trigger.place), ids=frozenset({trigger.event_id}), limit=1
        )
        (found,) = await self._services.log.for_model(query)
        return found[0] if found else None

    async def _turn(
        self, trigger: Trigger, network: Network, said: Event | None, *, is_test: bool
    ) -> TurnResult:
        services, place = self._services, trigger.place
        behaviour = services.behaviours.resolve(place)
        member = network.roster.member(place.channel, trigger.person)
        nick = said.nick if said else member.nick if member else trigger.person
        room = room_key(place, network.fold)
        is_personal = said is not None or trigger.kind is TriggerKind.THOUGHT
        now = to_micros(services.resources.clock.now()) // 1000  # ids of the log follow time
        anchor = said.id if said else now
        scope = scope_of(place, services.networks.settings.channel_groups)

        async def deliver(result: TurnResult) -> bool:
            if result.ok and result.text:
                target = self._target(trigger, network, nick, said)
                target = replace(target, quotes=result.quotes)
                if not await self._say(trigger, target, result.text, is_test=is_test):
                    return False  # so that memory does not keep it either
            if said and result.ok and not is_test:
                await self._follow_up(trigger, result)
            return True

        return await services.turns.take(
            TurnRequest(
                conversation=conversation_id(place, nick, network.fold) if is_personal else room,
                who=said.nick if said and trigger.kind is TriggerKind.REACTION else NO_ASKER,
                text=_text(trigger.kind, nick, said),
                person=trigger.person,
                room=room,
                log_window=self._log_views.before(place, anchor, nick if is_personal else ""),
                tools=services.tools_for(
                    Door(
                        log=self._log_views.tools(place, scope, anchor),
                        address=lambda: services.web_address,
                    )
                ),
                values=persona_values(network, place.channel, behaviour.command_prefix),
                persona=behaviour.persona,
                model=behaviour.model,
                priority="background",
                profile=trigger.profile,
                keeps=said is not None and not is_test,
                wants_status=said is not None,
                deliver=deliver,
            )
        )

    def _target(self, trigger: Trigger, network: Network, nick: str, said: Event | None) -> Target:
        target = self._services.sender.target(network, trigger.place)
        answers = None
        if said:
            answers = PendingEvent(said)
            answers.mark_settled(said.id)
        return replace(target, nick=nick if trigger.person else "", answers=answers)

    async def _say(self, trigger: Trigger, target: Target, text: str, *, is_test: bool) -> bool:
        """Say the answer, or record it in test mode; return whether it was said or recorded."""
        plain = strip_address(to_plain(text).strip(), target.nick)
        text = with_mark(plain, self._services.networks.settings.mark)
        log = _log.bind(kind=trigger.kind.value, channel=trigger.place.channel)
        if is_test:
            self.would_say[trigger.place] = target.address + text
            log.info("attention.would_say", text=target.address + text)
            return True
        said = await self._services.sender.say(target, text)
        if said:
            self._services.policy.note_reply_to(target.network, target.nick)
            log.info("attention.said", characters=len(text))
        return said


def _text(kind: TriggerKind, nick: str, said: Event | None) -> str:
    """Return the question for the model: a person's line, or the reason why it runs."""
    match kind:
        case TriggerKind.REACTION if said:
            return said.text
        case TriggerKind.DIRECT if said:
            return passing_mention(said.nick, said.text)
        case TriggerKind.THOUGHT:
            return follow_up(nick)
        case _:
            return unanswered_question(nick)

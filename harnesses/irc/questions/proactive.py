"""Speaking unasked: lines of channels go to attention, and what it wakes for becomes a turn.

Only where a channel's `proactive` allows it and the log is kept; never in private, and not because
of bots or of people who have opted out, whose lines attention does not see. The model is told why
it is run, and that it may stay silent.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from harnesses.core.tendril.turn_request import TurnRequest
from harnesses.core.tendril.turn_result import TurnResult
from harnesses.irc.channel_settings import ChannelBehaviour
from harnesses.irc.policy.command_request import CommandRequest
from harnesses.irc.policy.log_records import channel_key, conversation_id, scope_of
from harnesses.irc.policy.request_policy import Decision
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.identity import Identity
from harnesses.irc.questions.tools import ChannelTools
from harnesses.irc.replies.outbox_delivery import reachable
from harnesses.irc.replies.sender import Target
from harnesses.irc.replies.streaming_reply import strip_address
from harnesses.irc.transport.network import Network
from llm.attention.acknowledgements import Acknowledgement, AcknowledgementState
from llm.attention.attention import LATER
from llm.attention.message_features import MessageFeatures
from llm.attention.proactive_scheduler import ProactiveScheduler
from llm.attention.settings import AttentionSettings
from llm.attention.trigger import Trigger
from llm.attention.trigger_kinds import TriggerKind
from llm.parsing.stream_parser import FOLLOW_UP
from llm.prompt.log_window import LogWindow
from llm.tools.log_search import LogTools
from storage.chat_log.event import Event, Place, Scope
from storage.chat_log.pending_event import PendingEvent
from storage.chat_log.query import Query
from storage.passages.passages import LineFilter
from storage.queues.attention_state import AttentionStore, Signal

if TYPE_CHECKING:
    from harnesses.irc.tendril import IrcTendril

NOBODY = "nobody"
"""Who asks, when nobody does."""

_SILENT = ' If there is nothing useful to say, answer only {"response": ""}; that is often best.'

_PASSING = (
    "%s did not ask you, but named you in passing: %s\nSay something only if it helps." + _SILENT
)

_OCCASIONS: Mapping[TriggerKind, str] = {
    TriggerKind.THOUGHT: "A while ago you had a conversation with %s here. If something of it was"
    " left"
    " open, say in one sentence what is worth adding, or ask how it went.",
    TriggerKind.PRESSURE: "Several of your conversations here have ended without a result. If you"
    " can help"
    " somebody on, say so in one sentence.",
    TriggerKind.SILENCE: "A lively talk here has suddenly ended. If a question in it was left open"
    " that"
    " you can answer, answer it in a sentence or two.",
    TriggerKind.CONTACT: "Nobody has answered the question that %s asked all a few minutes ago. If"
    " you"
    " know the answer, give it in a sentence or two.",
}
_EVENT = "Something has happened that may concern this channel. If people here should know, say so."


def passing_mention(nick: str, text: str) -> str:
    """Tell the model that somebody has spoken of it, and not to it."""
    return _PASSING % (nick, text)


def occasion(kind: TriggerKind, nick: str) -> str:
    """Why the model is run; `nick` is whom it is about."""
    words = _OCCASIONS.get(kind, _EVENT)
    return (words % nick if "%s" in words else words) + _SILENT


_LINES = frozenset({TriggerKind.DIRECT, TriggerKind.REACTION})
"""Reasons that are a line of somebody."""

_NEVER = datetime.min.replace(tzinfo=UTC)
_log = structlog.get_logger()


class ProactiveSpeech:
    """What the bot does unasked on all networks. `scheduler` is there once it is prepared."""

    scheduler: ProactiveScheduler

    def __init__(self, tendril: IrcTendril) -> None:
        self._tendril = tendril
        self._awaited: dict[tuple[Place, str], datetime] = {}  # whose answer we wait for, how long
        self._dry_run_text: dict[Place, str] = {}  # what we would have said last, in test mode

    async def prepare(self) -> None:
        """Take up what an earlier life has left."""
        tendril = self._tendril
        self.scheduler = await ProactiveScheduler.restore(
            AttentionStore(tendril.database),
            tendril.config.section(AttentionSettings),
            tendril.clock,
            tendril.accounting.today,
            self._think,
        )

    async def run(self) -> None:
        """Look up whenever there is reason to, for ever."""
        await self.scheduler.run()

    def summary(self) -> list[str]:
        """How we are, for everybody; nothing while there is nothing to look at."""
        scheduler = self.scheduler
        state = [f"energy {scheduler.energy:.0%}", f"{len(scheduler.pending_signals)} signals wait"]
        return state if scheduler.is_awake else []

    def admin_summary(self, place: Place) -> str:
        """How we are, and what we would have said at a place, for admins."""
        state = (
            f"energy {self.scheduler.energy:.0%}, {len(self.scheduler.pending_signals)}"
            f" signals wait"
        )
        if wakes := [trigger for trigger in self.scheduler.wakes if trigger.place == place]:
            state += f", last woken at {wakes[-1].time:%H:%M} UTC by {wakes[-1].kind}"
        if would := self._dry_run_text.get(place):
            state += f"; would have said: {would}"
        return state

    def on_message(
        self,
        network: Network,
        event: IrcEvent,
        who: Identity,
        pending_event: PendingEvent,
        *,
        asked: bool,
    ) -> None:
        """Take in what somebody has said on a channel, be it `asked` of us or not. `entry` is
        their line on its way into the log."""
        tendril = self._tendril
        if (
            event.channel is None
            or event.type not in ("PRIVMSG", "ACTION")
            or not pending_event.event
        ):
            return
        place = Place(network.name, network.fold(event.channel))
        if tendril.behaviours.resolve(place).proactive == "off":
            return
        if not tendril.policy.should_process(network, event, who):
            return
        now, nick = tendril.clock.now(), network.nick.lower()
        line = MessageFeatures.extract(event.text, network.fold(who.nick), now.timestamp())
        self.scheduler.on_message(place, replace(line, asks=line.asks and not asked), nick)
        reacts = self._awaited.pop((place, line.person), _NEVER) > now
        if asked or not (reacts or nick in line.words):
            return
        if tendril.policy.is_bot_loop(network, who, event.text):
            return
        request = tendril.policy.request(network, event, who, event.text, pending_event)
        if tendril.policy.decide(request) is Decision.YES:
            kind = TriggerKind.REACTION if reacts else TriggerKind.DIRECT
            tendril.spawn(self._signal(kind, place, line.person, pending_event))

    async def on_answered(self, request: CommandRequest, result: TurnResult) -> None:
        """Somebody was answered: when it may be time to come back to them."""
        network = request.network
        place = Place(network.name, network.fold(request.place.channel))
        if request.private or self._tendril.behaviours.resolve(place).proactive == "off":
            return
        if anchor := await request.pending_event.wait_visible():
            await self._follow_up(place, network.fold(request.nick), anchor, result)

    async def on_cleared(self, request: CommandRequest) -> None:
        """Somebody has had their conversation forgotten: there is nothing to come back to."""
        network = request.network
        place = Place(network.name, network.fold(request.place.channel))
        person = network.fold(request.nick)
        self._awaited.pop((place, person), None)
        await self.scheduler.drop(TriggerKind.THOUGHT, place, person)

    async def _follow_up(self, place: Place, person: str, anchor: int, result: TurnResult) -> None:
        """Think of somebody again when the status of the answer to their line says so."""
        seconds = FOLLOW_UP.get(result.status) if result.status else None
        if seconds is None:
            await self.scheduler.drop(TriggerKind.THOUGHT, place, person)
            return
        due = self._tendril.clock.now() + timedelta(seconds=seconds)
        if result.status == "awaiting_answer":
            now = self._tendril.clock.now()
            self._awaited = {key: end for key, end in self._awaited.items() if end > now}
            self._awaited[place, person] = due
        thought = Signal(TriggerKind.THOUGHT, place, due, person=person, event_id=anchor)
        await self.scheduler.signal(thought, alone=True)

    async def mute(self, place: Place) -> None:
        """We are not wanted there: nothing unasked until an admin sets `proactive` anew."""
        await self.scheduler.mute(place)

    async def unmute(self, place: Place) -> None:
        """An admin has set `proactive` there."""
        self._dry_run_text.pop(place, None)
        await self.scheduler.unmute(place)

    async def _signal(
        self, kind: TriggerKind, place: Place, person: str, pending_event: PendingEvent
    ) -> None:
        anchor = await pending_event.wait_visible()
        now = self._tendril.clock.now()
        if kind is TriggerKind.REACTION:  # no need to come back to them
            await self.scheduler.drop(TriggerKind.THOUGHT, place, person)
        await self.scheduler.signal(Signal(kind, place, now, person=person, event_id=anchor))

    async def _think(self, trigger: Trigger) -> Acknowledgement | None:
        """Run the model; what fails is tried again later."""
        result = await self._tendril.catch_errors(functools.partial(self._run, trigger))
        if result.ok and not result.deferral:
            return None
        later = timedelta(hours=result.deferral.hours) if result.deferral else LATER
        return Acknowledgement(
            AcknowledgementState.DEFERRED, trigger.value, self._tendril.clock.now() + later
        )

    async def _run(self, trigger: Trigger) -> TurnResult:
        """What the model answers; nothing, when that was switched off or forgotten meanwhile."""
        place, nothing = trigger.place, TurnResult("")
        network = self._tendril.networks.get(place.network)
        if network is None or not reachable(network, place.channel):
            return nothing
        behaviour = self._tendril.behaviours.resolve(place)
        if behaviour.proactive == "off" or not behaviour.logging:
            return nothing
        if trigger.kind is TriggerKind.THOUGHT and not network.member(
            place.channel, trigger.person
        ):
            return nothing
        said = await self._line(trigger) if trigger.event_id else None
        if trigger.event_id and said is None:
            return nothing
        return await self._turn(
            trigger, network, behaviour, said if trigger.kind in _LINES else None
        )

    async def _line(self, trigger: Trigger) -> Event | None:
        """What was said to us, unless it has been forgotten."""
        query = Query(
            scope=Scope.from_places(trigger.place), ids=frozenset({trigger.event_id}), limit=1
        )
        (found,) = await self._tendril.log.for_model(query)
        return found[0] if found else None

    async def _turn(
        self, trigger: Trigger, network: Network, behaviour: ChannelBehaviour, said: Event | None
    ) -> TurnResult:
        tendril, place = self._tendril, trigger.place
        member = network.member(place.channel, trigger.person)
        nick = said.nick if said else member.nick if member else trigger.person
        room = channel_key(place, network.fold)
        own = said is not None or trigger.kind is TriggerKind.THOUGHT
        anchor = said.id if said else round(time.time() * 1000)  # ids of the log follow time
        scope = scope_of(place, tendril.settings.channel_groups)

        async def deliver(result: TurnResult) -> None:
            if result.ok and result.text:
                await self._say(
                    trigger, behaviour, self._target(trigger, network, nick, said), result
                )
            if said and result.ok and behaviour.proactive == "on":
                await self._follow_up(place, trigger.person, said.id, result)

        return await tendril.turn(
            TurnRequest(
                conversation=conversation_id(place, nick, network.fold) if own else room,
                who=said.nick if said and trigger.kind is TriggerKind.REACTION else NOBODY,
                text=_text(trigger.kind, nick, said),
                person=trigger.person,
                room=room,
                log_window=LogWindow(
                    log=tendril.log,
                    place=place,
                    anchor=anchor,
                    last=behaviour.max_context_messages,
                    speaker=nick if own else "",
                ),
                tools=[
                    LogTools(
                        tendril.log,
                        scope,
                        anchor,
                        tendril.semantic_index,
                        LineFilter(prefix=behaviour.command_prefix, nicks=(network.nick,)),
                    ),
                    ChannelTools(network, place.channel),
                ],
                values=persona_values(network, place.channel),
                persona=behaviour.persona,
                model=behaviour.model,
                priority="background",
                profile=trigger.profile,
                keeps=said is not None and behaviour.proactive == "on",
                wants_status=said is not None,
                deliver=deliver,
            )
        )

    def _target(self, trigger: Trigger, network: Network, nick: str, said: Event | None) -> Target:
        target = self._tendril.target_at(network, trigger.place, private=False)
        answers = None
        if said:
            answers = PendingEvent(said)
            answers.mark_visible(said.id)
        return replace(target, nick=nick if trigger.person else "", answers=answers)

    async def _say(
        self, trigger: Trigger, behaviour: ChannelBehaviour, target: Target, result: TurnResult
    ) -> None:
        """Say it, or only note it in test mode."""
        text = strip_address(result.text.lstrip(), target.nick)
        log = _log.bind(kind=trigger.kind.value, channel=trigger.place.channel)
        if behaviour.proactive == "test":
            self._dry_run_text[trigger.place] = target.address + text
            log.info("attention.would_say", text=target.address + text)
        elif await self._tendril.sender.say(target, text):
            self._tendril.policy.spoke_to(target.network, target.nick)
            log.info("attention.said", characters=len(text))


def _text(kind: TriggerKind, nick: str, said: Event | None) -> str:
    """What the model is asked: somebody's line, or the occasion."""
    if said is None:
        return occasion(kind, nick)
    return said.text if kind is TriggerKind.REACTION else passing_mention(said.nick, said.text)


def persona_values(network: Network, channel: str, *, private: bool = False) -> Mapping[str, str]:
    """Return what fills the `$names` of a persona on a channel, or in a private conversation."""
    if private:
        return {"nick": network.nick, "channel": "(a private conversation)", "topic": "(none)"}
    topic = network.topic(channel) or "(none)"
    return {"nick": network.nick, "channel": channel, "topic": topic}

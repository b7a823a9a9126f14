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

from harnesses.core.tendril.answer import Answer
from harnesses.core.tendril.turn_request import TurnRequest
from harnesses.irc.channel_settings import Behaviour
from harnesses.irc.policy.command_request import Request
from harnesses.irc.policy.log_records import conversation_of, room_of, scope_of
from harnesses.irc.policy.request_policy import May
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.identity import Identity
from harnesses.irc.questions.tools import ChannelTools
from harnesses.irc.replies.outbox_delivery import reachable
from harnesses.irc.replies.sender import Target
from harnesses.irc.replies.streaming_reply import unaddressed
from harnesses.irc.transport.network import Network
from llm.attention.acknowledgements import Acknowledgement, State
from llm.attention.attention import LATER
from llm.attention.heart import Heart
from llm.attention.kind import Kind
from llm.attention.line import Line
from llm.attention.settings import AttentionSettings
from llm.attention.wake import Wake
from llm.parsing.structured_output import FOLLOW_UP
from llm.prompt.log_window import LogView
from llm.tools.log_search import LogTools
from storage.chat_log.event import Event, Place, Scope
from storage.chat_log.pending_event import Entry
from storage.chat_log.query import Query
from storage.passages.passages import Spoken
from storage.queues.attention_state import AttentionStore, Signal

if TYPE_CHECKING:
    from harnesses.irc.tendril import IrcTendril

NOBODY = "nobody"
"""Who asks, when nobody does."""

_SILENT = ' If there is nothing useful to say, answer only {"response": ""}; that is often best.'

_PASSING = (
    "%s did not ask you, but named you in passing: %s\nSay something only if it helps." + _SILENT
)

_OCCASIONS: Mapping[Kind, str] = {
    Kind.THOUGHT: "A while ago you had a conversation with %s here. If something of it was left"
    " open, say in one sentence what is worth adding, or ask how it went.",
    Kind.PRESSURE: "Several of your conversations here have ended without a result. If you can help"
    " somebody on, say so in one sentence.",
    Kind.SILENCE: "A lively talk here has suddenly ended. If a question in it was left open that"
    " you can answer, answer it in a sentence or two.",
    Kind.CONTACT: "Nobody has answered the question that %s asked all a few minutes ago. If you"
    " know the answer, give it in a sentence or two.",
}
_EVENT = "Something has happened that may concern this channel. If people here should know, say so."


def passing_mention(nick: str, text: str) -> str:
    """Tell the model that somebody has spoken of it, and not to it."""
    return _PASSING % (nick, text)


def occasion(kind: Kind, nick: str) -> str:
    """Why the model is run; `nick` is whom it is about."""
    words = _OCCASIONS.get(kind, _EVENT)
    return (words % nick if "%s" in words else words) + _SILENT


_LINES = frozenset({Kind.DIRECT, Kind.REACTION})
"""Reasons that are a line of somebody."""

_NEVER = datetime.min.replace(tzinfo=UTC)
_log = structlog.get_logger()


class Proactive:
    """What the bot does unasked on all networks. `heart` is there once it is prepared."""

    heart: Heart

    def __init__(self, tendril: IrcTendril) -> None:
        self._tendril = tendril
        self._awaited: dict[tuple[Place, str], datetime] = {}  # whose answer we wait for, how long
        self._would: dict[Place, str] = {}  # what we would have said last, in test mode

    async def prepare(self) -> None:
        """Take up what an earlier life has left."""
        tendril = self._tendril
        self.heart = await Heart.remembering(
            AttentionStore(tendril.database),
            tendril.config.section(AttentionSettings),
            tendril.clock,
            tendril.accounts.today,
            self._think,
        )

    async def run(self) -> None:
        """Look up whenever there is reason to, for ever."""
        await self.heart.beat()

    def brief(self) -> list[str]:
        """How we are, for everybody; nothing while there is nothing to look at."""
        heart = self.heart
        state = [f"energy {heart.energy:.0%}", f"{len(heart.waiting)} signals wait"]
        return state if heart.awake else []

    def state(self, place: Place) -> str:
        """How we are, and what we would have said at a place, for admins."""
        state = f"energy {self.heart.energy:.0%}, {len(self.heart.waiting)} signals wait"
        if wakes := [wake for wake in self.heart.wakes if wake.place == place]:
            state += f", last woken at {wakes[-1].time:%H:%M} UTC by {wakes[-1].kind}"
        if would := self._would.get(place):
            state += f"; would have said: {would}"
        return state

    def heard(
        self, network: Network, event: IrcEvent, who: Identity, entry: Entry, *, asked: bool
    ) -> None:
        """Take in what somebody has said on a channel, be it `asked` of us or not. `entry` is
        their line on its way into the log."""
        tendril = self._tendril
        if event.channel is None or event.type not in ("PRIVMSG", "ACTION") or not entry.event:
            return
        place = Place(network.name, network.fold(event.channel))
        if tendril.behaviours.of(place).proactive == "off":
            return
        if not tendril.hearing.heeds(network, event, who):
            return
        now, nick = tendril.clock.now(), network.nick.lower()
        line = Line.read(event.text, network.fold(who.nick), now.timestamp())
        self.heart.hear(place, replace(line, asks=line.asks and not asked), nick)
        reacts = self._awaited.pop((place, line.person), _NEVER) > now
        if asked or not (reacts or nick in line.words):
            return
        if tendril.hearing.in_loop(network, who, event.text):
            return
        request = tendril.hearing.request(network, event, who, event.text, entry)
        if tendril.hearing.may(request) is May.YES:
            kind = Kind.REACTION if reacts else Kind.DIRECT
            tendril.spawn(self._signal(kind, place, line.person, entry))

    async def answered(self, request: Request, answer: Answer) -> None:
        """Somebody was answered: when it may be time to come back to them."""
        network = request.network
        place = Place(network.name, network.fold(request.place.channel))
        if request.private or self._tendril.behaviours.of(place).proactive == "off":
            return
        if anchor := await request.line.written():
            await self._follow_up(place, network.fold(request.nick), anchor, answer)

    async def cleared(self, request: Request) -> None:
        """Somebody has had their conversation forgotten: there is nothing to come back to."""
        network = request.network
        place = Place(network.name, network.fold(request.place.channel))
        person = network.fold(request.nick)
        self._awaited.pop((place, person), None)
        await self.heart.drop(Kind.THOUGHT, place, person)

    async def _follow_up(self, place: Place, person: str, anchor: int, answer: Answer) -> None:
        """Think of somebody again when the status of the answer to their line says so."""
        seconds = FOLLOW_UP.get(answer.status) if answer.status else None
        if seconds is None:
            await self.heart.drop(Kind.THOUGHT, place, person)
            return
        due = self._tendril.clock.now() + timedelta(seconds=seconds)
        if answer.status == "awaiting_answer":
            now = self._tendril.clock.now()
            self._awaited = {key: end for key, end in self._awaited.items() if end > now}
            self._awaited[place, person] = due
        thought = Signal(Kind.THOUGHT, place, due, person=person, anchor=anchor)
        await self.heart.signal(thought, alone=True)

    async def hush(self, place: Place) -> None:
        """We are not wanted there: nothing unasked until an admin sets `proactive` anew."""
        await self.heart.hush(place)

    async def lift(self, place: Place) -> None:
        """An admin has set `proactive` there."""
        self._would.pop(place, None)
        await self.heart.lift(place)

    async def _signal(self, kind: Kind, place: Place, person: str, entry: Entry) -> None:
        anchor = await entry.written()
        now = self._tendril.clock.now()
        if kind is Kind.REACTION:  # no need to come back to them
            await self.heart.drop(Kind.THOUGHT, place, person)
        await self.heart.signal(Signal(kind, place, now, person=person, anchor=anchor))

    async def _think(self, wake: Wake) -> Acknowledgement | None:
        """Run the model; what fails is tried again later."""
        answer = await self._tendril.safely(functools.partial(self._run, wake))
        if answer.ok and not answer.deferral:
            return None
        later = timedelta(hours=answer.deferral.hours) if answer.deferral else LATER
        return Acknowledgement(State.DEFERRED, wake.value, self._tendril.clock.now() + later)

    async def _run(self, wake: Wake) -> Answer:
        """What the model answers; nothing, when that was switched off or forgotten meanwhile."""
        place, nothing = wake.place, Answer("")
        network = self._tendril.networks.get(place.network)
        if network is None or not reachable(network, place.channel):
            return nothing
        behaviour = self._tendril.behaviours.of(place)
        if behaviour.proactive == "off" or not behaviour.logging:
            return nothing
        if wake.kind is Kind.THOUGHT and not network.member(place.channel, wake.person):
            return nothing
        said = await self._line(wake) if wake.anchor else None
        if wake.anchor and said is None:
            return nothing
        return await self._turn(wake, network, behaviour, said if wake.kind in _LINES else None)

    async def _line(self, wake: Wake) -> Event | None:
        """What was said to us, unless it has been forgotten."""
        query = Query(scope=Scope.of(wake.place), ids=frozenset({wake.anchor}), limit=1)
        (found,) = await self._tendril.log.for_model(query)
        return found[0] if found else None

    async def _turn(
        self, wake: Wake, network: Network, behaviour: Behaviour, said: Event | None
    ) -> Answer:
        tendril, place = self._tendril, wake.place
        member = network.member(place.channel, wake.person)
        nick = said.nick if said else member.nick if member else wake.person
        room = room_of(place, network.fold)
        own = said is not None or wake.kind is Kind.THOUGHT
        anchor = said.id if said else round(time.time() * 1000)  # ids of the log follow time
        scope = scope_of(place, tendril.settings.channel_groups)

        async def deliver(answer: Answer) -> None:
            if answer.ok and answer.text:
                await self._say(wake, behaviour, self._target(wake, network, nick, said), answer)
            if said and answer.ok and behaviour.proactive == "on":
                await self._follow_up(place, wake.person, said.id, answer)

        return await tendril.turn(
            TurnRequest(
                conversation=conversation_of(place, nick, network.fold) if own else room,
                who=said.nick if said and wake.kind is Kind.REACTION else NOBODY,
                text=_text(wake.kind, nick, said),
                person=wake.person,
                room=room,
                view=LogView(
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
                        tendril.meaning,
                        Spoken(prefix=behaviour.command_prefix, nicks=(network.nick,)),
                    ),
                    ChannelTools(network, place.channel),
                ],
                values=persona_values(network, place.channel),
                persona=behaviour.persona,
                model=behaviour.model,
                priority="background",
                profile=wake.profile,
                keeps=said is not None and behaviour.proactive == "on",
                wants_status=said is not None,
                deliver=deliver,
            )
        )

    def _target(self, wake: Wake, network: Network, nick: str, said: Event | None) -> Target:
        target = self._tendril.target_at(network, wake.place, private=False)
        answers = None
        if said:
            answers = Entry(said)
            answers.written_as(said.id)
        return replace(target, nick=nick if wake.person else "", answers=answers)

    async def _say(self, wake: Wake, behaviour: Behaviour, target: Target, answer: Answer) -> None:
        """Say it, or only note it in test mode."""
        text = unaddressed(answer.text.lstrip(), target.nick)
        log = _log.bind(kind=wake.kind.value, channel=wake.place.channel)
        if behaviour.proactive == "test":
            self._would[wake.place] = target.address + text
            log.info("attention.would_say", text=target.address + text)
        elif await self._tendril.speech.say(target, text):
            self._tendril.hearing.spoke_to(target.network, target.nick)
            log.info("attention.said", characters=len(text))


def _text(kind: Kind, nick: str, said: Event | None) -> str:
    """What the model is asked: somebody's line, or the occasion."""
    if said is None:
        return occasion(kind, nick)
    return said.text if kind is Kind.REACTION else passing_mention(said.nick, said.text)


def persona_values(network: Network, channel: str, *, private: bool = False) -> Mapping[str, str]:
    """Return what fills the `$names` of a persona on a channel, or in a private conversation."""
    if private:
        return {"nick": network.nick, "channel": "(a private conversation)", "topic": "(none)"}
    topic = network.topic(channel) or "(none)"
    return {"nick": network.nick, "channel": channel, "topic": topic}

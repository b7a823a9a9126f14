"""Takeover from a holder that is gone: logs the events and answers the questions that it missed.

An event is in the log if a logged one has the same place, sender, target, type and text, and the
same message id or, without ids, a time within the tolerated clock skew. A question counts as
answered if the holder was then seen to reply to its author. A command whose line the holder has
logged has taken effect and is not run again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog

from harnesses.irc.commands.privacy import UNLOGGED
from harnesses.irc.event_handler import EventHandler
from harnesses.irc.failover.standby import BufferedEvent
from harnesses.irc.playback import CLOCK_SKEW, OWN_CLOCK_SKEW
from harnesses.irc.policy.requests import ASK_COMMAND, to_log_event
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.services import BotServices
from storage.chat_log.event import Event, PendingEvent, Place, Scope
from storage.log import ChatLog, Query

_MAX_LINES = 100_000  # lines of the log to compare with

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class HeardLine:
    """A received event with the log record that it would have (`record`).

    `command` is the command that it asks for, or "". `asker` is the author, or the addressee of an
    own line, as (network, folded channel, folded nick).
    """

    event: IrcEvent
    record: Event
    below_watermark: bool
    command: str
    asker: tuple[str, str, str]


class Takeover:
    """Passes the events received during standby on to the event handler."""

    def __init__(self, services: BotServices, handler: EventHandler) -> None:
        self._services, self._handler = services, handler

    async def run(self, heard: Sequence[BufferedEvent]) -> None:
        """Log the events that are missing in the log and answer unanswered questions.

        Raises StorageError.
        """
        # An unlogged event goes through the normal path, which logs it, and answers only if it is
        # unanswered. A settled one that is not in the log was left out on purpose (opt-outs).
        lines = [self._line(each) for each in heard]
        known = await find_logged(self._services.log, [line.record for line in lines])
        unanswered = find_unanswered(lines)
        missing = 0
        for number, line in enumerate(lines):
            logged = known.get(number)
            if logged is None and not line.below_watermark:
                missing += 1
                self._handler.on_event(line.event, answers=number in unanswered)
            elif logged and number in unanswered:
                self._answer(line.event, logged)
        _log.info("irc.taken_over", heard=len(lines), missing=missing, unanswered=len(unanswered))

    def _line(self, heard: BufferedEvent) -> HeardLine:
        services = self._services
        network, policy = services.networks[heard.event.network], services.policy
        event, who = policy.speaker(network, heard.event)
        place = policy.place(network, event, who)
        prefix = services.behaviours.resolve(place).command_prefix
        asked = policy.parse_words(network, event, prefix)
        is_ours = asked and asked.command in self._handler.commands.known.keys() - UNLOGGED
        command = asked.command if asked and is_ours else ""
        # Our replies begin with the addressee, as in "alice: hello".
        person = event.text.partition(":")[0] if event.own else who.nick
        return HeardLine(
            heard.event,
            to_log_event(event, place),
            heard.below_watermark,
            command if policy.should_process(network, event, who) else "",
            (network.name, network.fold(event.channel or ""), network.fold(person)),
        )

    def _answer(self, event: IrcEvent, logged: Event) -> None:
        """Answer a question whose line is already in the log; other commands are not run again."""
        services, commands = self._services, self._handler.commands.known
        network, policy = services.networks[event.network], services.policy
        event, who = policy.speaker(network, event)
        prefix = services.behaviours.resolve(policy.place(network, event, who)).command_prefix
        asked = policy.take_trigger(network, event, who, prefix)
        if asked and commands.get(asked.command) == commands[ASK_COMMAND]:
            line = PendingEvent(logged)
            line.mark_settled(logged.id)
            request = policy.request(network, event, who, asked.words, line)
            self._handler.answer(commands[ASK_COMMAND], request)


def find_unanswered(lines: Sequence[HeardLine]) -> Collection[int]:
    """Return the indexes of the lines that ask for something and got no reply.

    A reply counts for the oldest open question of its addressee.
    """
    waiting: dict[tuple[str, str, str], deque[int]] = {}
    for number, line in enumerate(lines):
        if line.command:
            waiting.setdefault(line.asker, deque()).append(number)
        elif (questions := waiting.get(line.asker)) and line.record.own:
            questions.popleft()
    return {number for questions in waiting.values() for number in questions}


async def find_logged(log: ChatLog, records: Sequence[Event]) -> Mapping[int, Event]:
    """Return the logged events that match `records`, by index in `records`.

    Each logged event matches at most one record, so repeated lines are counted correctly. Raises
    Unavailable.
    """
    if not records:
        return {}
    query = Query(
        scope=Scope.from_places(*{Place(each.network, each.channel) for each in records}),
        since=min(each.time for each in records) - OWN_CLOCK_SKEW,
        until=max(each.time for each in records) + OWN_CLOCK_SKEW,
        limit=_MAX_LINES,
    )
    known: dict[tuple[str, ...], list[Event]] = {}
    for event in await log.find(query):
        known.setdefault(_key(event), []).append(event)
    found = {}
    for number, record in enumerate(records):
        candidates = known.get(_key(record), [])
        if same := next((each for each in candidates if _is_same(record, each)), None):
            candidates.remove(same)
            found[number] = same
    return found


def _key(event: Event) -> tuple[str, ...]:
    place = (event.network, event.channel.lower())
    # A message of several lines is logged as one event each; its first line stands for it.
    text = event.text.partition("\n")[0]
    return (*place, event.type.value, event.nick.lower(), event.target.lower(), text)


def _is_same(record: Event, known: Event) -> bool:
    if record.msgid and known.msgid:
        return record.msgid == known.msgid
    apart = abs(record.time - known.time)
    return apart <= (OWN_CLOCK_SKEW if record.own else CLOCK_SKEW)

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
from harnesses.irc.playback import CLOCK_SKEW, OWN_CLOCK_SKEW
from harnesses.irc.policy.requests import QUESTION_COMMANDS, to_log_event
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.services import BotServices
from storage.chat_log.event import Event, Identity, PendingEvent, Place, Scope
from storage.log import ChatLog, Query

_MAX_LINES = 100_000  # lines of the log to compare with

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class BufferedEvent:
    """An event received during standby.

    `below_watermark` is set if the last holder's watermark covers it: the holder has logged it, or
    chose not to, so a takeover must not log it.
    """

    event: IrcEvent
    below_watermark: bool


@dataclass(frozen=True, slots=True)
class _Heard:
    """A received event with the log record that it would have (`record`).

    `command` is the command that it asks for, or "". `asker` is the author, or the addressee of an
    own line, as (network, folded channel, folded nick).
    """

    event: IrcEvent
    record: Event
    below_watermark: bool
    command: str
    asker: tuple[str, str, str]


async def take_over(
    services: BotServices, handler: EventHandler, heard: Sequence[BufferedEvent]
) -> None:
    """Pass the events received during standby on to the event handler: log those that are missing
    in the log and answer unanswered questions.

    Raises StorageError.
    """
    policy, commands = services.policy, handler.commands.known

    def read(event: IrcEvent) -> tuple[IrcEvent, Identity, Place, str]:
        network = services.networks[event.network]
        event, who = policy.speaker(network, event)
        place = policy.place(network, event, who)
        return event, who, place, services.behaviours.resolve(place).command_prefix

    def line(buffered: BufferedEvent) -> _Heard:
        network = services.networks[buffered.event.network]
        event, who, place, prefix = read(buffered.event)
        asked = policy.parse_words(network, event, prefix)
        is_ours = asked and asked.command in commands.keys() - UNLOGGED
        command = asked.command if asked and is_ours else ""
        # Our replies begin with the addressee, as in "alice: hello".
        person = event.text.partition(":")[0] if event.own else who.nick
        return _Heard(
            buffered.event,
            to_log_event(event, place),
            buffered.below_watermark,
            command if policy.should_process(network, event, who) else "",
            (network.name, network.fold(event.channel or ""), network.fold(person)),
        )

    # An unlogged event goes through the normal path, which logs it, and answers only if it is
    # unanswered. A settled one that is not in the log was left out on purpose (opt-outs).
    lines = [line(each) for each in heard]
    known = await find_logged(services.log, [each.record for each in lines])
    unanswered, missing = find_unanswered(lines), 0
    for number, each in enumerate(lines):
        logged = known.get(number)
        if logged is None and not each.below_watermark:
            missing += 1
            handler.on_event(each.event, answers=number in unanswered)
        elif logged and number in unanswered:
            # Its line is in the log already. Commands other than questions are not run again.
            network = services.networks[each.event.network]
            event, who, _, prefix = read(each.event)
            asked = policy.take_trigger(network, event, who, prefix)
            if asked and asked.command in QUESTION_COMMANDS:
                pending = PendingEvent(logged)
                pending.mark_settled(logged.id)
                request = policy.request(network, event, who, asked.words, pending)
                handler.answer(commands[asked.command], request)
    _log.info("irc.taken_over", heard=len(lines), missing=missing, unanswered=len(unanswered))


def find_unanswered(lines: Sequence[_Heard]) -> Collection[int]:
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

"""Takeover from a holder that is gone: logs the events and answers the questions that it missed.

Which events it has logged is found by `find_logged`. A question counts as answered if the holder
was then seen to reply to its author. A command whose line the holder has logged has taken effect
and is not run again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import structlog

from harnesses.irc.commands.privacy import UNLOGGED
from harnesses.irc.event_handler import EventHandler
from harnesses.irc.policy.requests import QUESTION_COMMANDS, to_log_event
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.services import BotServices
from storage.chat_log.event import PendingEvent
from storage.log import find_logged

_log = structlog.get_logger()


async def take_over(
    services: BotServices, handler: EventHandler, buffered: Sequence[tuple[IrcEvent, bool]]
) -> None:
    """Pass the events received during standby on to the event handler: log those that are missing
    in the log and answer unanswered questions.

    With each event is given whether the last holder's watermark covers it: then the holder has
    logged it, or chose not to (opt-outs). Raises StorageError.
    """
    policy, commands = services.policy, handler.commands.known
    redactions = [event for event, _ in buffered if event.type == "REDACT"]
    buffered = [each for each in buffered if each[0].type != "REDACT"]
    lines = [policy.hear(services.networks[event.network], event) for event, _ in buffered]
    logged = await find_logged(
        services.log, [to_log_event(line.event, line.place) for line in lines]
    )
    waiting: dict[tuple[str, str, str], deque[int]] = {}
    for number, line in enumerate(lines):
        network, event = line.network, line.event
        # Our replies begin with the addressee, as in "alice: hello". A reply counts for the oldest
        # open question of its addressee.
        person = event.text.partition(":")[0] if event.own else line.who.nick
        asker = network.name, network.fold(event.channel or ""), network.fold(person)
        asked = policy.parse_words(line, services.prefix(line.place))
        is_known = asked and (asked.command in commands or asked.question)
        is_ours = asked and is_known and asked.command not in UNLOGGED
        if is_ours and policy.should_process(line):
            waiting.setdefault(asker, deque()).append(number)
        elif event.own and (questions := waiting.get(asker)):
            questions.popleft()
    unanswered, missing = {number for each in waiting.values() for number in each}, 0
    for number, (event, below_watermark) in enumerate(buffered):
        known = logged.get(number)
        if known is None and not below_watermark:
            missing += 1
            handler.on_event(event, answers=number in unanswered)
        elif known and number in unanswered:
            # Its line is in the log already. Commands other than questions are not run again.
            line = lines[number]
            asked = policy.take_trigger(line, services.prefix(line.place))
            if asked and asked.command in QUESTION_COMMANDS:
                pending = PendingEvent(known)
                pending.mark_settled(known.id)
                handler.answer(commands[asked.command], policy.request(line, asked.words, pending))
    for event in redactions:
        handler.on_event(event)
    _log.info("irc.taken_over", heard=len(lines), missing=missing, unanswered=len(unanswered))

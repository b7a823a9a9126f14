"""Scheduled questions: the model is asked in the name of their owner, while the owner is present.

Those of an admin on a channel are the channel's, and are asked while the admin is away, too. Each
run checks again who the owner is, which rights they have, and that they have neither opted out nor
had the question erased.
"""

from __future__ import annotations

from dataclasses import replace

from harnesses.core.chat import ask_later
from harnesses.core.services.reminders import RunOutcome, previous_due
from harnesses.core.tendril.turn import TurnResult
from harnesses.irc.questions.channel_view import find_owner
from harnesses.irc.questions.handler import IrcMedium
from harnesses.irc.requests import IrcRequest
from harnesses.irc.services import BotServices
from llm.log_questions import Quoting
from llm.prompt.log_window import LogWindow
from storage.chat_log.event import Identity, PendingEvent, Scope
from storage.chat_log.event_table import id_at
from storage.queues.reminders import Reminder

_SCHEDULED = (
    "The person who asks has not just spoken: they scheduled this question earlier, for now. Do it;"
    " if it is to ask or tell people something, write that."
)
_MAX_LINES = 5_000  # spoken lines since the last run that the model is shown


async def ask_scheduled(services: BotServices, medium: IrcMedium, reminder: Reminder) -> RunOutcome:
    """Ask a question in the name of its owner, and deliver the answer where it was scheduled.

    The outcome is LATER while the channel, a rate limit or the model does not permit it, ABSENT
    while the owner is away, ENDED once they have opted out, are ignored, or had it erased.
    """
    place, owner = reminder.place, reminder.owner
    network = services.networks.get(place.network)
    if network is None or not (reminder.private or network.reaches(place.channel)):
        return RunOutcome.LATER
    who = await find_owner(network, owner)
    is_here = who is not None and (
        reminder.private or network.roster.member(place.channel, who.nick) is not None
    )
    who = who or Identity(owner.nick, owner.user, owner.host, owner.account)
    if services.hides(network, who):
        return RunOutcome.ENDED
    if services.policy.is_ignored(network, who):
        return RunOutcome.ENDED
    if not is_here and (reminder.private or not services.policy.is_admin(network, who)):
        return RunOutcome.ABSENT
    asked, line = None, reminder.question_event_id
    if line:
        asked = await services.log.get(Scope.from_places(place), line)
        if asked is None:
            return RunOutcome.ENDED  # the line that scheduled it was erased
    request = IrcRequest(  # as if its owner made it now
        network=network,
        place=place,
        recipient=who.nick if reminder.private else place.channel,
        private=reminder.private,
        who=who,
        words=reminder.text,
        scope=services.scope_of(place),
        pending_event=PendingEvent.stored(line, asked),
        admin=services.policy.is_admin(network, who),
        person=services.policy.key_of_person(network, who),
    )
    if not services.policy.try_acquire(request):
        return RunOutcome.LATER
    return await _put(services, medium, reminder, request)


async def _put(
    services: BotServices, medium: IrcMedium, reminder: Reminder, request: IrcRequest
) -> RunOutcome:
    network = request.network
    behaviour = services.live.resolve(request.place)
    keeps = behaviour.logging and request.pending_event.event is not None

    async def deliver(result: TurnResult) -> bool:
        if not (result.ok and result.text):
            return True  # no apology is sent: the question is asked again later
        target = replace(services.sender.target_of(request), quotes=result.quotes)
        if not (reminder.private or network.roster.member(request.place.channel, target.nick)):
            target = replace(target, nick="")  # nobody is addressed who is away
        services.policy.note_reply(network, request.who.name)
        is_markdown = result.iterations > 0
        answer = services.sender.compose(target, result.text, is_markdown=is_markdown)
        return await services.sender.deliver(target, answer)

    now = id_at(services.resources.clock.now())
    window = LogWindow(
        log=services.log,
        place=reminder.place,
        anchor=now,
        last=_MAX_LINES,
        speaker=reminder.owner.nick,
        quoting=Quoting(services.resources.configuration.agent.zone),
    )
    # What any question would be shown now, and all since the previous due time of this one.
    recent = await window.recent(behaviour.max_context_messages)
    since = min([previous_due(reminder), *(event.time for event in recent[:1])])
    window = replace(window, since=since)
    question = medium.turn_request(request, window, now)
    abilities = f"{question.values['abilities']}\n\n{_SCHEDULED}"
    turn = replace(
        question,
        values={**question.values, "abilities": abilities},
        keeps=keeps,
        origin=replace(request.origin, priority="background"),
        deliver=deliver,
    )
    return await ask_later(services.tendril, reminder, turn)

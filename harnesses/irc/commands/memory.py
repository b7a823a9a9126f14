"""Commands about what the bot remembers of a person. No model is asked."""

from __future__ import annotations

from harnesses.core.services.reminders import TIMEZONE_FACT
from harnesses.core.text import counted
from harnesses.irc.policy.requests import (
    CommandRequest,
    PrivateReply,
    Reply,
    conversation_of,
    room_key,
)
from harnesses.irc.services import BotServices
from llm.memory.room import RoomMemory, fact_key, statement_in
from llm.scheduling.cron_schedule import is_zone
from llm.skills.world_clock import zone_name
from storage.memory.memories import Memory
from storage.queues.reminders import Reminders

_MAX_FACTS = 20  # facts in a list
BRIDGED = "I cannot tell who you are: you speak to me through a relay."
_KEPT_OUT = "I keep nothing of what you say here, so I cannot remember that either."


class MemoryCommands:
    """The commands."""

    def __init__(self, services: BotServices) -> None:
        self._services = services

    async def remember(self, request: CommandRequest) -> Reply:
        """remember KEY VALUE: keep that for me, here (also: remember that my tea is oolong)"""
        if refusal := self._refusal(request):
            return refusal
        statement = statement_in(request.words)
        if statement is None:
            prefix = self._services.prefix(request.place)
            return PrivateReply(f"Remember what? {prefix}remember tea oolong")
        value = statement.value
        # Reminders use this fact, so it has to be an IANA name.
        if statement.key == TIMEZONE_FACT and not is_zone(value):
            zone = zone_name(value)
            if zone is None:
                return PrivateReply(f"I know no time zone {value}; write it as Europe/Vienna.")
            value = zone
        key = await memory_of(self._services, request).remember(value, statement.key)
        return f"I will remember: your {key} is {value}." if key else f"I will remember: {value}."

    async def recall(self, request: CommandRequest) -> Reply:
        """recall [KEY]: what I have told you to remember; alone, all of it"""
        if request.who.bridged:
            return PrivateReply(BRIDGED)
        mine = memory_of(self._services, request)
        key = fact_key(request.words)
        if not key:
            return PrivateReply(_list_facts(await mine.facts()))
        if found := await mine.fact(key):
            return f"Your {found.key} is {found.text}."
        near = [fact for fact in await mine.facts() if key in fact.key or key in fact.text.lower()]
        return PrivateReply(
            _list_facts(near) if near else f"I remember nothing of yours called {key}."
        )

    async def memory(self, request: CommandRequest) -> Reply:
        """memory: what I keep about you, and how to remove it"""
        if request.who.bridged:
            return PrivateReply(BRIDGED)
        own, prefix = self._services.resources, self._services.prefix(request.place)
        mine = memory_of(self._services, request)
        facts, notes = await mine.facts(), await mine.notes()
        turns = len(await own.conversations.turns(conversation_of(request)))
        reminders = len(await Reminders(own.database).for_owner(request.requester.owner))
        lines = [
            _list_facts(facts),
            *(f"Noted: {note.text}." for note in notes[-_MAX_FACTS:]),
            f"Our conversation here has {counted(turns, 'turn')}, and you have"
            f" {counted(reminders, 'reminder')}. {prefix}forget KEY removes a fact, {prefix}clear"
            f" the conversation, {prefix}forget me all that I have of you.",
        ]
        return PrivateReply("\n".join(lines))

    def _refusal(self, request: CommandRequest) -> PrivateReply | None:
        """Return why nothing can be remembered for the author, None when it can."""
        # Without an event on a logged channel the line itself was not kept, as with "[nolog]".
        who, network = request.who, request.network
        if who.bridged:
            return PrivateReply(BRIDGED)
        hidden = self._services.medium.log.opt_outs.opt_out_rules.hides_person(network.name, who)
        logs = self._services.behaviours.resolve(request.place).logging
        is_kept_out = hidden or (logs and request.pending_event.event is None)
        return PrivateReply(_KEPT_OUT) if is_kept_out else None


def memory_of(services: BotServices, request: CommandRequest) -> RoomMemory:
    """Return the memory of a request's author, in the place of the request."""
    room, memory = room_key(request.place, request.network.fold), services.resources.memory
    return RoomMemory.of(memory, room, conversation_of(request), request.person)


def _list_facts(facts: list[Memory]) -> str:
    """Return facts as one line."""
    if not facts:
        return "I remember no facts about you here."
    shown = "; ".join(f"{fact.key} = {fact.text}" for fact in facts[:_MAX_FACTS])
    more = f"; and {len(facts) - _MAX_FACTS} more" if len(facts) > _MAX_FACTS else ""
    return f"I remember about you here: {shown}{more}."

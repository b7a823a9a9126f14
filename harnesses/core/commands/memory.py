"""Commands about what the bot remembers of a person. No model is asked."""

from __future__ import annotations

from harnesses.core.commands.request import Medium, MediumCommands, PrivateReply, R, Reply
from harnesses.core.services.reminders import TIMEZONE_FACT
from harnesses.core.text import counted
from llm.memory.room import RoomMemory, fact_key, statement_in
from llm.scheduling.cron_schedule import is_zone
from llm.skills.world_clock import zone_name
from storage.memory.memories import Memory
from storage.queues.reminders import Reminders

_MAX_FACTS = 20  # facts in a list
BRIDGED = "I cannot tell who you are: you speak to me through a relay."
_KEPT_OUT = "Nothing you say here is stored, so I cannot remember that."


class MemoryCommands(MediumCommands[R]):
    """The commands."""

    async def remember(self, request: R) -> Reply:
        """remember KEY VALUE: store a fact about me here (also: remember that my tea is oolong)"""
        if refusal := self._refusal(request):
            return refusal
        statement = statement_in(request.words)
        if statement is None:
            prefix = self._medium.prefix(request.place)
            return PrivateReply(f"Remember what? {prefix}remember tea oolong")
        value = statement.value
        # Reminders use this fact, so it has to be an IANA name.
        if statement.key == TIMEZONE_FACT and not is_zone(value):
            zone = zone_name(value)
            if zone is None:
                return PrivateReply(f"There is no time zone {value}; write it like Europe/Vienna.")
            value = zone
        key = await memory_of(self._medium, request).store(value, statement.key)
        return f"I will remember: your {key} is {value}." if key else f"I will remember: {value}."

    async def recall(self, request: R) -> Reply:
        """recall [KEY]: show what I asked you to remember; without KEY, all of it"""
        if request.who.bridged:
            return PrivateReply(BRIDGED)
        mine = memory_of(self._medium, request)
        key = fact_key(request.words)
        if not key:
            return PrivateReply(_list_facts(await mine.facts()))
        if found := await mine.fact(key):
            return f"Your {found.key} is {found.text}."
        near = [fact for fact in await mine.facts() if key in fact.key or key in fact.text.lower()]
        return PrivateReply(
            _list_facts(near) if near else f"I remember nothing about you called {key}."
        )

    async def memory(self, request: R) -> Reply:
        """memory: show what is stored about me, and how to delete it"""
        if request.who.bridged:
            return PrivateReply(BRIDGED)
        own, prefix = self._medium.tendril.resources, self._medium.prefix(request.place)
        mine = memory_of(self._medium, request)
        facts, notes = await mine.facts(), await mine.notes()
        turns = len(await own.conversations.turns(request.conversation))
        reminders = len(await Reminders(own.database).for_owner(request.requester.owner))
        lines = [
            _list_facts(facts),
            *(f"Noted: {note.text}." for note in notes[-_MAX_FACTS:]),
            f"Our conversation here has {counted(turns, 'turn')}, and you have"
            f" {counted(reminders, 'reminder')}. {prefix}forget KEY deletes a fact, {prefix}clear"
            f" the conversation, {prefix}forget me everything about you.",
        ]
        return PrivateReply("\n".join(lines))

    def _refusal(self, request: R) -> PrivateReply | None:
        """Return why nothing can be remembered for the author, None when it can."""
        if request.who.bridged:
            return PrivateReply(BRIDGED)
        return None if self._medium.keeps(request) else PrivateReply(_KEPT_OUT)


def memory_of(medium: Medium[R], request: R) -> RoomMemory:
    """Return the memory of a request's author, in the place of the request."""
    memory = medium.tendril.memory
    return RoomMemory.of(memory, request.room, request.conversation, request.person)


def _list_facts(facts: list[Memory]) -> str:
    """Return facts as one line."""
    if not facts:
        return "I remember no facts about you here."
    shown = "; ".join(f"{fact.key} = {fact.text}" for fact in facts[:_MAX_FACTS])
    more = f"; and {len(facts) - _MAX_FACTS} more" if len(facts) > _MAX_FACTS else ""
    return f"I remember these facts about you here: {shown}{more}."

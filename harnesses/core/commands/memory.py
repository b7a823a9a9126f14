"""Commands about what is kept of a person: memory, opting out of the log, and erasure.

No model is asked. The last two are not logged themselves, and answered to the person alone.
"""

from __future__ import annotations

import structlog

from harnesses.core.commands.request import Medium, MediumCommands, PrivateReply, R, Reply
from harnesses.core.services.reminders import TIMEZONE_FACT
from harnesses.core.text import counted
from llm.memory.room import RoomMemory, fact_key, statement_in
from llm.scheduling.cron_schedule import is_zone
from llm.skills.world_clock import zone_name
from storage.db.errors import StorageError
from storage.memory.memories import Memory
from storage.privacy.erasure import Person
from storage.queues.reminders import Reminders

_MAX_FACTS = 20  # facts in a list
BRIDGED = "I cannot tell who you are: you speak to me through a relay."
_KEPT_OUT = "Nothing you say here is stored, so I cannot remember that."
_GOING_ON = (
    "a file cannot be written now. I will try again every hour and at each start until nothing is"
    " left; if you ask again, I will try at once."
)

_MOST_CONVERSATIONS = 10_000  # of one person
_log = structlog.get_logger()


class MemoryCommands(MediumCommands[R]):
    """The commands about memory."""

    async def remember(self, request: R) -> Reply:
        """remember KEY VALUE: store a fact about me here (also: remember that my tea is oolong)"""
        if request.who.bridged:
            return PrivateReply(BRIDGED)
        if not self._medium.keeps(request):
            return PrivateReply(_KEPT_OUT)
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


class PrivacyCommands(MediumCommands[R]):
    """The commands about the log and erasure."""

    async def nolog(self, request: R) -> Reply:
        """nolog [off]: stop logging what I say (off: log me again)"""
        network, who = request.place.network, request.who
        if who.bridged:
            return PrivateReply(BRIDGED)
        if request.words and request.words.lower() != "off":
            return PrivateReply("You can only opt out yourself: write just nolog.")
        if not self._medium.is_logged(request):
            prefix = self._medium.prefix(request.place)
            return PrivateReply(
                f"Nothing you write here is logged. I do remember our conversation; {prefix}clear"
                f" deletes it, {prefix}forget me also the facts about you."
            )
        await request.pending_event.wait_visible()  # what was said before is in the log
        privacy = self._medium.tendril.privacy
        if request.words:
            if await privacy.opt_in(who, network):
                return PrivateReply("You are logged again.")
            return PrivateReply(
                "Only the person who asked for it can undo it: log in to that account, or connect"
                " from the same host."
            )
        await privacy.opt_out(who, network, request.person)
        command = self._medium.prefix(request.place)
        advice = (
            f"This applies while you are logged in to {who.account}, under any nick. "
            if who.account
            else f"This applies to {who.mask}; log in to services to have it apply to all"
            " your nicks. "
        )
        return PrivateReply(
            f"I no longer store what you say, or show it to the model. {advice}"
            f"{command}nolog off undoes it; {command}forget me deletes what is already stored."
        )

    async def forget(self, request: R) -> Reply:
        """forget me: delete everything I have said; forget KEY: delete one fact about me"""
        if request.who.bridged:
            return PrivateReply(BRIDGED)
        words = request.words.lower().split()
        if words[:1] == ["me"] and not self._medium.is_logged(request):
            return await self._forget_unlogged(request)
        privacy = self._medium.tendril.privacy
        person = privacy.person(request.who, request.place.network, request.person)
        if words[:1] == ["me"] and len(words) == 2 and privacy.confirms(person, words[1]):
            # First, so that no running turn stores anything of the person after the erasure.
            await self._medium.tendril.turns.drop(request.owns)
            try:
                gone = await privacy.forget(person)
            except StorageError as error:
                _log.error("privacy.not_forgotten", error=str(error))
                return PrivateReply(
                    "Nothing has been deleted: I cannot write to the disk. Please try again later."
                )
            if not gone.is_finished:
                return PrivateReply(f"Not finished: {_GOING_ON}")
            return PrivateReply(
                f"Forgotten: {counted(gone.events, 'event')} of yours, with my replies to them and"
                " quotes of them."
            )
        if words[:1] == ["me"]:
            return PrivateReply(await self._asked_back(person, self._medium.prefix(request.place)))
        all_of_it = f"{self._medium.prefix(request.place)}forget me"
        key = fact_key(request.words)
        if not key:
            return PrivateReply(f"To delete everything you have said: {all_of_it}")
        if await memory_of(self._medium, request).delete(key):
            return PrivateReply(f"Forgotten: your {key}.")
        return PrivateReply(
            f"I remember nothing about you called {key}. To delete everything you have said:"
            f" {all_of_it}"
        )

    async def _forget_unlogged(self, request: R) -> str:
        """Remove all that is kept of the author of a request in a place that is not logged."""
        tendril, turns = self._medium.tendril, await self._medium.clear(request)
        others = await tendril.conversations.of_room(request.room, _MOST_CONVERSATIONS)
        for name in {request.room, *(each.name for each in others)}:
            turns += await tendril.clear(name)
        facts = await memory_of(self._medium, request).delete()
        gone = await tendril.remind.cancel_own(request.requester, "all")
        reports = await tendril.research.forget(request.place)
        return (
            f"Forgotten: our conversation of {counted(turns, 'turn')}, {counted(facts, 'fact')},"
            f" {counted(len(gone or ()), 'reminder')} and {counted(reports, 'report')}."
        )

    async def _asked_back(self, person: Person, prefix: str) -> str:
        """Return what would be removed, and the word that confirms it."""
        privacy = self._medium.tendril.privacy
        kept = await privacy.count(person)
        if not kept:
            # An unfinished erasure may be theirs: once their events are gone, nobody can tell.
            if await privacy.finish_earlier():
                found = "I know of nothing that is yours."
            else:
                found = (
                    "Nothing else in the log is known to be yours. An earlier deletion"
                    f" is still unfinished: {_GOING_ON}"
                )
            return found + _identity_text(person)
        word = privacy.confirmation_word(person)
        return (
            f"This permanently deletes {counted(kept.events, 'event')} of yours, my replies to"
            f" them and quotes of them, and {counted(kept.reminders, 'reminder')}."
            f"{_identity_text(person)} To confirm, write within two minutes: {prefix}forget me"
            f" {word}"
        )


def _identity_text(person: Person) -> str:
    """Return a sentence on which lines count as the person's."""
    mask = f"{person.nick}!{person.user}@{person.host}"
    if person.account:
        return f" Yours are all lines by the account {person.account} and by {mask}."
    return f" Yours are all lines by {mask}."

"""Privacy commands: opting out of the log, and erasure.

Neither command is logged itself, and both are answered to the person alone.
"""

from __future__ import annotations

import structlog

from harnesses.core.commands.memory import BRIDGED, memory_of
from harnesses.core.commands.request import MediumCommands, PrivateReply, R, Reply
from harnesses.core.text import counted
from llm.memory.room import fact_key
from storage.db.errors import StorageError
from storage.privacy.erasure import Person

_GOING_ON = (
    "a file cannot be written now. I will try again every hour and at each start until nothing is"
    " left; if you ask again, I will try at once."
)

_MOST_CONVERSATIONS = 10_000  # of one person
_log = structlog.get_logger()


class PrivacyCommands(MediumCommands[R]):
    """The commands."""

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

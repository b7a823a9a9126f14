"""Privacy commands: opting out of the log, and erasure.

Neither command is logged itself, and both are answered to the person alone.
"""

from __future__ import annotations

import structlog

from harnesses.core.text import counted
from harnesses.irc.commands.memory import BRIDGED, memory_of
from harnesses.irc.policy.requests import CommandRequest, PrivateReply, Reply, belongs_to
from harnesses.irc.services import BotServices
from llm.memory.room import fact_key
from storage.db.errors import StorageError
from storage.privacy.erasure import Person

UNLOGGED = frozenset({"nolog", "forget"})
"""The commands that are not logged."""

_GOING_ON = (
    "a file cannot be written just now. I go on with it by myself, each hour and at each start,"
    " until nothing is left; asking again makes me try at once."
)

_log = structlog.get_logger()


class PrivacyCommands:
    """The commands."""

    def __init__(self, services: BotServices) -> None:
        self._services = services

    async def nolog(self, request: CommandRequest) -> Reply:
        """nolog [off]: keep nothing of what I say from now on (off: log me again)"""
        network, who = request.network.name, request.who
        if who.bridged:
            return PrivateReply(BRIDGED)
        if request.words and request.words.lower() != "off":
            return PrivateReply("Nobody can ask that for others: for yourself write only nolog.")
        await request.pending_event.wait_visible()  # what was said before is in the log
        privacy = self._services.medium.privacy
        if request.words:
            if await privacy.opt_in(who, network):
                return PrivateReply("You are logged again.")
            return PrivateReply(
                "Only whoever asked for it can take it back: log in to the account, or come from"
                " where you came then."
            )
        await privacy.opt_out(who, network, request.person)
        command = self._services.prefix(request.place)
        advice = (
            f"That counts while you are logged in to {who.account}, under each nick. "
            if who.account
            else f"That counts for {who.mask}; log in to services, so that it counts under each"
            " nick and from everywhere. "
        )
        return PrivateReply(
            f"I keep nothing more of what you say, and show nothing of it to the model. {advice}"
            f"{command}nolog off takes it back; {command}forget me removes what there is."
        )

    async def forget(self, request: CommandRequest) -> Reply:
        """forget me: remove all that you have kept of what I said; forget KEY: one fact about me"""
        if request.who.bridged:
            return PrivateReply(BRIDGED)
        privacy = self._services.medium.privacy
        person = privacy.person(request.who, request.network.name, request.person)
        words = request.words.lower().split()
        if words[:1] == ["me"] and len(words) == 2 and privacy.confirms(person, words[1]):
            # First, so that no running turn stores anything of the person after the erasure.
            await self._services.turns.drop(lambda name: belongs_to(name, request))
            try:
                gone = await privacy.forget(person)
            except StorageError as error:
                _log.error("irc.not_forgotten", error=str(error))
                return PrivateReply(
                    "Nothing is removed yet, as I cannot write to the disk. Please ask again later."
                )
            if not gone.is_finished:
                return PrivateReply(f"Not finished: {_GOING_ON}")
            return PrivateReply(
                f"Forgotten: {counted(gone.events, 'event')} of yours, with what I answered to them"
                " and what I quoted of them."
            )
        if words[:1] == ["me"]:
            return PrivateReply(
                await self._asked_back(person, self._services.prefix(request.place))
            )
        all_of_it = f"{self._services.prefix(request.place)}forget me"
        key = fact_key(request.words)
        if not key:
            return PrivateReply(f"This removes all that I have kept of what you said: {all_of_it}")
        if await memory_of(self._services, request).forget(key):
            return PrivateReply(f"Forgotten: your {key}.")
        return PrivateReply(
            f"I remember nothing of yours called {key}. This removes all that I have kept of what"
            f" you said: {all_of_it}"
        )

    async def _asked_back(self, person: Person, prefix: str) -> str:
        """Return what would be removed, and the word that confirms it."""
        privacy = self._services.medium.privacy
        kept = await privacy.count(person)
        if not kept:
            # An unfinished erasure may be theirs: once their events are gone, nobody can tell.
            if await privacy.finish_earlier():
                found = "There is nothing that I know to be yours."
            else:
                found = (
                    "There is nothing more in the log that I know to be yours. Something that was"
                    f" to be removed before is still left: {_GOING_ON}"
                )
            return found + _identity_text(person)
        word = privacy.confirmation_word(person)
        return (
            f"{counted(kept.events, 'event')} {'is' if kept.events == 1 else 'are'} yours, and"
            f" {counted(kept.reminders, 'reminder')}; they go for ever, with what I answered to"
            " them and what I quoted of them."
            f"{_identity_text(person)} To have it done, write within two minutes: {prefix}forget"
            f" me {word}"
        )


def _identity_text(person: Person) -> str:
    """Return a sentence on which lines count as the person's."""
    mask = f"{person.nick}!{person.user}@{person.host}"
    if person.account:
        return f" Yours is what the account {person.account}, or {mask}, has said."
    return f" Yours is what {mask} has said."

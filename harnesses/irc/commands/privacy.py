"""Commands by which people decide about their own words: not to be logged, to be forgotten.

Neither command is logged itself, and both are answered to the person alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog

from harnesses.core.counted import counted
from harnesses.irc.commands.memory import BRIDGED, memory_of
from harnesses.irc.policy.log_records import belongs_to
from harnesses.irc.policy.requests import Command, CommandRequest, PrivateReply
from harnesses.irc.services import BotServices
from llm.memory.personal import fact_key
from storage.chat_log.event import Identity
from storage.db.errors import StorageError
from storage.memory.deletion import redact
from storage.privacy.erasure import Person, count, forget, resume_erasures
from storage.queues.reminders import Reminders
from storage.settings import log_address

UNLOGGED = frozenset({"nolog", "forget"})
"""The commands that are not logged."""

_CONFIRM = timedelta(minutes=2)  # how long the word that confirms is valid

_GOING_ON = (
    "a file cannot be written just now. I go on with it by myself, each hour and at each start,"
    " until nothing is left; asking again makes me try at once."
)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Wish:
    """A wish to be forgotten that has not been confirmed yet."""

    word: str
    until: datetime


class PrivacyCommands:
    """The commands by name."""

    def __init__(self, services: BotServices) -> None:
        self._services = services
        self._wishes: dict[Person, _Wish] = {}
        self.known: Mapping[str, Command] = {"nolog": self.nolog, "forget": self.forget}

    async def nolog(self, request: CommandRequest) -> str:
        """nolog [off]: keep nothing of what I say from now on (off: log me again)"""
        network, who = request.network.name, request.who
        if who.bridged:
            return PrivateReply(BRIDGED)
        await request.pending_event.wait_visible()  # what was said before is in the log
        opt_outs = self._services.opt_outs
        if request.words.lower() == "off":
            if await opt_outs.remove(network, who):
                return PrivateReply("You are logged again.")
            return PrivateReply(
                "Only whoever asked for it can take it back: log in to the account, or come from"
                " where you came then."
            )
        await opt_outs.add(network, who)
        await redact(self._services.tendril.database, network, who.nick)
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

    async def forget(self, request: CommandRequest) -> str:
        """forget me: remove all that you have kept of what I said; forget KEY: one fact about me"""
        if request.who.bridged:
            return PrivateReply(BRIDGED)
        await self._services.log.flush()  # what was said just now counts too
        person = _person(request.network.name, request.who)
        words = request.words.lower().split()
        wish = self._wishes.get(person)
        if wish and len(words) == 2 and words[1] == wish.word and wish.until > datetime.now(UTC):
            del self._wishes[person]
            await self._cancel_all(request)
            return PrivateReply(await self._forget(person))
        if words[:1] == ["me"]:
            return PrivateReply(
                await self._asked_back(person, self._services.prefix(request.place))
            )
        return PrivateReply(await self._forget_fact(request))

    async def _forget_fact(self, request: CommandRequest) -> str:
        """Remove one fact about the person, by its name."""
        all_of_it = f"{self._services.prefix(request.place)}forget me"
        key = fact_key(request.words)
        if not key:
            return f"This removes all that I have kept of what you said: {all_of_it}"
        if await memory_of(self._services.tendril.memory, request).forget(key):
            return f"Forgotten: your {key}."
        return (
            f"I remember nothing of yours called {key}. This removes all that I have kept of what"
            f" you said: {all_of_it}"
        )

    async def _asked_back(self, person: Person, prefix: str) -> str:
        """Return what would be removed, and the word that confirms it."""
        services = self._services
        found = await count(services.log, person)
        reminders = await Reminders(services.tendril.database).for_owner(person.owner)
        if not found and not reminders:
            return await self._finish_earlier() + _identity_text(person)
        now = datetime.now(UTC)
        self._wishes = {who: wish for who, wish in self._wishes.items() if wish.until > now}
        word = secrets.token_hex(3)
        self._wishes[person] = _Wish(word, now + _CONFIRM)
        count_of_reminders = counted(len(reminders), "reminder")
        return (
            f"{counted(found, 'event')} {'is' if found == 1 else 'are'} yours, and"
            f" {count_of_reminders}; they go for ever, with what I answered to them."
            f"{_identity_text(person)} To have it done, write within two minutes: {prefix}forget"
            f" me {word}"
        )

    async def _finish_earlier(self) -> str:
        """Go on with what was asked for before; return what to tell somebody of whom nothing is
        found. It may have been theirs: of what is half done nobody can tell any more."""
        config = self._services.tendril.config
        if await resume_erasures(log_address(config), config.data):
            return "There is nothing that I know to be yours."
        return (
            "There is nothing more in the log that I know to be yours. Something that was to be"
            f" removed before is still left: {_GOING_ON}"
        )

    async def _cancel_all(self, request: CommandRequest) -> None:
        """End what is being answered for whoever asks, anywhere on their network."""
        network, who, fold = request.network.name, request.who, request.network.fold
        await self._services.cancel(lambda name: belongs_to(name, network, who, fold))

    async def _forget(self, person: Person) -> str:
        tendril, log = self._services.tendril, self._services.log
        try:
            await tendril.accounting.forget_names()  # also those that are not in the file yet
            gone = await forget(tendril.database, log, person, tendril.config.data)
        except StorageError as error:
            _log.error("irc.not_forgotten", error=str(error))
            return "Nothing is removed yet, as I cannot write to the disk. Please ask again later."
        _log.info(
            "irc.forgotten",
            network=person.network,
            events=gone.events,
            finished=gone.is_finished,
        )
        if not gone.is_finished:
            return f"Not finished: {_GOING_ON}"
        return (
            f"Forgotten: {counted(gone.events, 'event')} of yours,"
            f" {counted(gone.replies, 'line')} of mine, and"
            f" {counted(gone.turns, 'turn')} of my memory."
        )


def _person(network: str, who: Identity) -> Person:
    return Person(network, who.nick, who.user, who.host, who.account)


def _identity_text(person: Person) -> str:
    """Return what counts as theirs, in a sentence."""
    mask = f"{person.nick}!{person.user}@{person.host}"
    if person.account:
        return f" Yours is what the account {person.account}, or {mask}, has said."
    return f" Yours is what {mask} has said."

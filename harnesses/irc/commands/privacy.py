"""What people decide about their own words: not to be logged, to be forgotten.

Neither command is logged itself, and both are answered to the person alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

import structlog

from harnesses.irc.commands.memory import memory_of
from harnesses.irc.policy.command_request import Command, CommandRequest, PrivateReply
from harnesses.irc.protocol.identity import Identity
from llm.memory.memory import TendrilMemory
from llm.memory.personal import fact_key
from storage.chat_log.event import Place
from storage.chat_log.opt_outs import OptOuts
from storage.db.database import Database
from storage.log import ChatLog
from storage.memory.deletion import redact
from storage.privacy.audit_log import AuditEntry, AuditLog
from storage.privacy.erasure import Person, count, forget, other_files
from storage.queues.reminders import Reminders
from storage.settings import log_path
from terrarium.config import Config

UNLOGGED = frozenset({"nolog", "forget"})
"""The commands that are not logged."""

_CONFIRM = timedelta(minutes=2)  # how long the word that confirms is valid
_BRIDGED = "I cannot tell who you are: you speak to me through a relay."

_log = structlog.get_logger()


class PrivacyHost(Protocol):
    """What these commands need of the tendril."""

    config: Config
    database: Database
    log: ChatLog
    audit: AuditLog
    opt_outs: OptOuts
    memory: TendrilMemory

    def prefix(self, request: CommandRequest) -> str:
        """What a command begins with where `request` was given."""

    async def cancel_all(self, request: CommandRequest) -> None:
        """End all that is being answered for whoever asks."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """Somebody wants to be forgotten, and has not confirmed it yet."""

    word: str
    until: datetime


class PrivacyCommands:
    """The commands by name."""

    def __init__(self, host: PrivacyHost) -> None:
        self._host = host
        self._wishes: dict[Person, _Wish] = {}
        self.known: Mapping[str, Command] = {"nolog": self.nolog, "forget": self.forget}

    async def nolog(self, request: CommandRequest) -> str:
        """nolog [off]: keep nothing of what I say from now on (off: log me again)"""
        await request.pending_event.wait_visible()  # what was said before is in the log
        network, who = request.network.name, request.who
        opt_outs = self._host.opt_outs
        if request.words.lower() == "off":
            if await opt_outs.remove(network, who.nick, who.account):
                return PrivateReply("You are logged again.")
            return PrivateReply(
                "Only the account that asked for it can take it back: log in to it."
            )
        await opt_outs.add(network, who.nick, who.account)
        await redact(self._host.database, network, who.nick)
        command = self._host.prefix(request)
        advice = "" if who.account else "Log in to services, so that it stays so under each nick. "
        return PrivateReply(
            f"I keep nothing more of what you say, and show nothing of it to the model. {advice}"
            f"{command}nolog off takes it back; {command}forget me removes what there is."
        )

    async def forget(self, request: CommandRequest) -> str:
        """forget me: remove all that you have kept of what I said; forget KEY: one fact about me"""
        if request.who.bridged:
            return PrivateReply(_BRIDGED)
        await self._host.log.flush()  # what was said just now counts too
        person = _person(request.network.name, request.who)
        words = request.words.lower().split()
        wish = self._wishes.get(person)
        if wish and len(words) == 2 and words[1] == wish.word and wish.until > datetime.now(UTC):
            del self._wishes[person]
            await self._host.cancel_all(request)
            return PrivateReply(await self._forget(person))
        if words[:1] == ["me"]:
            return PrivateReply(await self._asked_back(person, self._host.prefix(request)))
        return PrivateReply(await self._forget_fact(request))

    async def _forget_fact(self, request: CommandRequest) -> str:
        """Remove one fact about the person, by its name."""
        all_of_it = f"{self._host.prefix(request)}forget me"
        key = fact_key(request.words)
        if not key:
            return f"This removes all that I have kept of what you said: {all_of_it}"
        if await memory_of(self._host.memory, request).forget(key):
            return f"Forgotten: your {key}."
        return (
            f"I remember nothing of yours called {key}. This removes all that I have kept of what"
            f" you said: {all_of_it}"
        )

    async def _asked_back(self, person: Person, prefix: str) -> str:
        """What would go, and the word that confirms it."""
        found = await count(self._host.log, person)
        reminders = await Reminders(self._host.database).for_owner(person.owner)
        if not found and not reminders:
            return "There is nothing that I know to be yours." + _identity_text(person)
        now = datetime.now(UTC)
        self._wishes = {who: wish for who, wish in self._wishes.items() if wish.until > now}
        word = secrets.token_hex(3)
        self._wishes[person] = _Wish(word, now + _CONFIRM)
        return (
            f"{found:,} events are yours, and {len(reminders)} reminders; they go for ever, with"
            " what I answered to them."
            f"{_identity_text(person)} To have it done, write within two minutes: {prefix}forget"
            f" me {word}"
        )

    async def _forget(self, person: Person) -> str:
        host = self._host
        path = log_path(host.config)
        others = other_files(host.config.data, path)
        gone = await forget(host.database, host.log, person, others)
        # Who it was is forgotten here too.
        place = Place(person.network, "")
        await host.audit.add(AuditEntry(place, "", "forget", f"{gone.events} events"))
        _log.info("irc.forgotten", network=person.network, events=gone.events)
        return (
            f"Forgotten: {gone.events:,} events of yours, {gone.replies:,} lines of mine, and"
            f" {gone.turns:,} turns of my memory."
        )


def _person(network: str, who: Identity) -> Person:
    return Person(network, who.nick, who.user, who.host, who.account)


def _identity_text(person: Person) -> str:
    """What counts as theirs, in a sentence."""
    mask = f"{person.nick}!{person.user}@{person.host}"
    if person.account:
        return f" Yours is what the account {person.account}, or {mask}, has said."
    return f" Yours is what {mask} has said."

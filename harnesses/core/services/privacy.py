"""Opt-outs and erasure: what people decide about their own data."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from harnesses.core.services.shared_log import TendrilLog
from llm.client.token_usage import TokenAccounting
from storage.chat_log.event import Identity, Place
from storage.db.database import Database
from storage.db.errors import StorageError
from storage.memory.deletion import redact
from storage.privacy.erasure import Forgotten, Person, count, forget, remove_line, resume_erasures
from storage.queues.reminders import Reminders
from storage.settings import log_address
from terrarium.clock import Clock
from terrarium.config import Config

_CONFIRMATION_TIMEOUT = timedelta(minutes=2)  # validity of a confirmation word

_RETRY_INTERVAL = 3600.0  # seconds between attempts to finish interrupted erasures

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class KeptRecords:
    """The numbers of events and reminders that are kept of a person."""

    events: int
    reminders: int

    def __bool__(self) -> bool:
        return bool(self.events or self.reminders)


class PrivacyService:
    """Opt-outs and erasure, for the people of one tendril.

    `database` has the tendril's own tables, `log` is the shared log. An account, or user name and
    host together, prove that something is a person's; a nick alone proves nothing.
    """

    def __init__(
        self,
        log: TendrilLog,
        database: Database,
        accounting: TokenAccounting,
        config: Config,
        clock: Clock,
    ) -> None:
        self._log, self._database, self._accounting = log, database, accounting
        self._config, self._clock = config, clock
        # Requests for erasure: the word that confirms each, and until when.
        self._wishes: dict[Person, tuple[str, datetime]] = {}

    def person(self, who: Identity, network: str = "", key: str = "") -> Person:
        """Return the `Person` with an identity on a network (default: the tendril's own); `key` is
        the name under which memory knows them (default: `Identity.key`)."""
        own = network or self._log.network
        return Person(own, who.nick, who.user, who.host, who.account, key or who.key(str.lower))

    async def opt_out(self, who: Identity, network: str = "", key: str = "") -> None:
        """Stop logging a person, and hide what they said before from the model. Memory knows them
        by the name `key` (default: `Identity.key`).

        Memories derived from it are deleted, and made again without it where possible. Raises
        StorageError.
        """
        network = network or self._log.network
        await self._log.opt_outs.add(network, who)
        await redact(self._database, network, key or who.key(str.lower))

    async def opt_in(self, who: Identity, network: str = "") -> bool:
        """Log a person again; return False if the opt-out under their nick is somebody else's.
        Raises StorageError."""
        return await self._log.opt_outs.remove(network or self._log.network, who)

    async def count(self, person: Person) -> KeptRecords:
        """Count the events and reminders that are kept of a person. Raises StorageError."""
        await self._log.chat_log.flush()  # what was said just now counts too
        reminders = await Reminders(self._database).for_owner(person.owner)
        return KeptRecords(await count(self._log.chat_log, person), len(reminders))

    def confirmation_word(self, person: Person) -> str:
        """Return a new word that confirms the erasure of a person within the next two minutes."""
        now = self._clock.now()
        self._wishes = {who: wish for who, wish in self._wishes.items() if wish[1] > now}
        word = secrets.token_hex(3)
        self._wishes[person] = word, now + _CONFIRMATION_TIMEOUT
        return word

    def confirms(self, person: Person, word: str) -> bool:
        """Return whether `word` confirms the erasure of a person; a word is valid once."""
        known, until = self._wishes.get(person, ("", self._clock.now()))
        if known != word or until <= self._clock.now():
            return False
        del self._wishes[person]
        return True

    async def forget(self, person: Person) -> Forgotten:
        """Erase all that a person has said, and everything derived from it, for all tendrils.

        What cannot be erased at once is tried again, each hour and at each start. Raises
        StorageError when the request could not even be recorded; then nothing is removed.
        """
        await self._log.chat_log.flush()  # or lines still in the queue would be missed
        await self._accounting.forget_names()  # also those that are in memory only
        gone = await forget(self._log.chat_log, person, self._config.data)
        network, done = person.network, gone.is_finished
        _log.info("privacy.forgotten", network=network, events=gone.events, finished=done)
        return gone

    async def redact(self, place: Place, msgid: str) -> None:
        """Remove a line that was redacted where it was said. Raises StorageError."""
        await self._log.chat_log.flush()
        await remove_line(self._log.chat_log, place, msgid, self._config.data)

    async def finish_earlier(self) -> bool:
        """Resume interrupted erasures; return False while something is left of one. Raises
        StorageError."""
        return await resume_erasures(log_address(self._config), self._config.data)

    async def run(self) -> None:
        """Resume interrupted erasures, now and every hour, until cancelled."""
        while True:
            try:
                await self.finish_earlier()
            except StorageError as error:  # another hour is soon enough
                _log.error("erasure.not_resumed", error=str(error))
            await asyncio.sleep(_RETRY_INTERVAL)

"""Opt-outs and forgetting: the decisions of people about their own words."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from harnesses.core.services.shared_log import TendrilLog
from llm.client.token_usage import TokenAccounting
from storage.chat_log.event import Identity
from storage.db.database import Database
from storage.db.errors import StorageError
from storage.memory.deletion import redact
from storage.privacy.erasure import Forgotten, Person, count, forget, resume_erasures
from storage.queues.reminders import Reminders
from storage.settings import log_address
from terrarium.clock import Clock
from terrarium.config import Config

_CONFIRM = timedelta(minutes=2)  # how long the word that confirms is valid

_EVERY = 3600.0  # seconds between looks for forgettings that are not finished

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class KeptRecords:
    """The number of events and reminders that are a person's."""

    events: int
    reminders: int

    def __bool__(self) -> bool:
        return bool(self.events or self.reminders)


@dataclass(frozen=True, slots=True)
class _Wish:
    """A wish to be forgotten that has not been confirmed yet."""

    word: str
    until: datetime


class PrivacyService:
    """Opt-outs and forgetting, for the people of one tendril.

    `database` is the tendril's own file, `log` the shared log. Whom the medium cannot tell apart by
    an account, or by user name and host, has nothing that is provably theirs.
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
        self._wishes: dict[Person, _Wish] = {}

    def person(self, who: Identity, network: str = "") -> Person:
        """Return a person of a network (default: the tendril's own) as the owner of what they
        said."""
        return Person(network or self._log.network, who.nick, who.user, who.host, who.account)

    async def opt_out(self, who: Identity, network: str = "") -> None:
        """Keep nothing more of what a person says, and show nothing of it to the model. Raises
        StorageError."""
        network = network or self._log.network
        await self._log.opt_outs.add(network, who)
        await redact(self._database, network, who.nick)

    async def opt_in(self, who: Identity, network: str = "") -> bool:
        """Log a person again; return False when it was not they who had opted out. Raises
        StorageError."""
        return await self._log.opt_outs.remove(network or self._log.network, who)

    async def count(self, person: Person) -> KeptRecords:
        """Count what is kept of a person. Raises StorageError."""
        await self._log.chat_log.flush()  # what was said just now counts too
        reminders = await Reminders(self._database).for_owner(person.owner)
        return KeptRecords(await count(self._log.chat_log, person), len(reminders))

    def confirmation_word(self, person: Person) -> str:
        """Return a word by which a person confirms, within two minutes, that they want to be
        forgotten."""
        now = self._clock.now()
        self._wishes = {who: wish for who, wish in self._wishes.items() if wish.until > now}
        word = secrets.token_hex(3)
        self._wishes[person] = _Wish(word, now + _CONFIRM)
        return word

    def confirms(self, person: Person, word: str) -> bool:
        """Return whether `word` confirms the wish of a person; it does so once."""
        wish = self._wishes.get(person)
        if wish is None or wish.word != word or wish.until <= self._clock.now():
            return False
        del self._wishes[person]
        return True

    async def forget(self, person: Person) -> Forgotten:
        """Remove all that a person has said, and what was made of it, from the files of all
        tendrils. What cannot be removed at once is gone on with, each hour and at each start.
        Raises StorageError when it could not even be recorded; then nothing is removed."""
        await self._log.chat_log.flush()
        await self._accounting.forget_names()  # also those that are not in the file yet
        log = self._log.chat_log
        gone = await forget(self._log.database, log, person, self._config.data)
        _log.info(
            "privacy.forgotten",
            network=person.network,
            events=gone.events,
            finished=gone.is_finished,
        )
        return gone

    async def finish_earlier(self) -> bool:
        """Go on with forgettings that were interrupted; return False while something is left.
        Raises StorageError."""
        return await resume_erasures(log_address(self._config), self._config.data)

    async def run(self) -> None:
        """Go on with forgettings that were interrupted, now and every hour, until cancelled."""
        while True:
            try:
                await self.finish_earlier()
            except StorageError as error:  # another hour is soon enough
                _log.error("erasure.not_resumed", error=str(error))
            await asyncio.sleep(_EVERY)

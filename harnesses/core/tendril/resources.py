"""The resources of a running tendril: client, database and tables, pseudonyms."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import date, datetime
from hashlib import blake2b
from pathlib import Path

import structlog

from harnesses.core.tendril.configuration import Configuration
from harnesses.core.tendril.status import AccessMonitor, StatusFile
from llm.client.client import AgentClient, ModelCatalog, Reader
from llm.client.token_usage import TokenAccounting, TokenCounter
from llm.memory.consolidation import TendrilMemory
from llm.memory.room import SharedMemory
from llm.memory.settings import MemorySettings
from storage.db.database import Database
from storage.db.private_files import make_folder
from storage.memory.conversations import Conversations
from storage.memory.memories import Memories
from storage.memory.skills import SkillTable
from storage.queues.jobs import Jobs
from storage.runs.runs import Runs
from storage.settings import log_address, store_address
from terrarium.clock import Clock

_KEY_BYTES = 16  # of a key for pseudonyms

_log = structlog.get_logger()


class Pseudonyms:
    """The pseudonyms of the people and channels of the tendril `name`, for which the agent server
    keeps separate budgets; `now` returns the time in UTC.

    They are stable for one UTC day, the period of a budget, also across restarts. Each day has its
    own random key in a file in `DATA/run`, which backups leave out. The file is deleted when the
    next key is created; from then on nobody can compute the old pseudonyms.
    """

    def __init__(self, data: Path, name: str, now: Callable[[], datetime]) -> None:
        self._folder, self._name, self._now = data / "run", name, now
        self._day: date | None = None
        self._key = b""

    def of(self, name: str) -> str:
        """Return today's pseudonym of a person or channel: 16 hexadecimal digits."""
        today = self._now().date()
        if today != self._day:
            self._day, self._key = today, self._key_of(today)
        text = f"{self._name} {name}"
        return blake2b(text.encode(), key=self._key, digest_size=8).hexdigest()

    def _key_of(self, day: date) -> bytes:
        """Return the key of a day, from its file, which is written if it has none."""
        path = self._folder / f"{self._name}-{day.isoformat()}.key"
        try:
            make_folder(self._folder)
            for old in set(self._folder.glob(f"{self._name}-????-??-??.key")) - {path}:
                old.unlink(missing_ok=True)
            with open(os.open(path, os.O_CREAT | os.O_RDWR, 0o600), "r+b") as file:
                # Several processes of a tendril, as IRC standbys, share the file: one writes the
                # key, and the others wait for that moment.
                fcntl.flock(file, fcntl.LOCK_EX)
                key = file.read()
                if len(key) != _KEY_BYTES:  # new, or a crash came before it was written
                    key = secrets.token_bytes(_KEY_BYTES)
                    file.seek(0)
                    file.truncate()
                    file.write(key)
            return key
        except OSError as error:  # a full disk: the pseudonyms are stable only in this process
            _log.warning("pseudonyms.not_kept", error=str(error))
            return secrets.token_bytes(_KEY_BYTES)


class Resources:
    """The resources for answers: the configuration, the model, and the tendril's own tables.

    `client` is the connection to the agent server, and `access` reports it if the server refuses
    us. `catalog` lists the server's models, `token_counter` measures prompts, `reader` reads
    questions, and `accounting` records the tokens spent. `database` holds the tendril's own tables:
    `conversations`, `memory`, `jobs`, `runs` and `skills`. `shared_memory` has the facts of all
    rooms. `pseudonyms` are the names of people and channels for the agent server.
    """

    memory: TendrilMemory
    shared_memory: SharedMemory

    def __init__(
        self,
        name: str,
        configuration: Configuration,
        status: StatusFile,
        clock: Clock,
        database: Database,
        accounting: TokenAccounting,
        client: AgentClient,
    ) -> None:
        self.name, self.configuration, self.status, self.clock = name, configuration, status, clock
        self.database, self.accounting, self.client = database, accounting, client
        self.access, self.catalog = AccessMonitor(client, status), ModelCatalog(client)
        self.token_counter, self.reader = TokenCounter(client, self.catalog), Reader(client)
        self.conversations, self.skills = Conversations(database), SkillTable(database)
        self.jobs, self.runs = Jobs(database, clock.now), Runs(database)
        self.pseudonyms = Pseudonyms(configuration.config.data, name, clock.now)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        name: str,
        configuration: Configuration,
        status: StatusFile,
        clock: Clock,
        *,
        uses_log_database: bool,
        learns: bool = True,
    ) -> AsyncIterator[Resources]:
        """Open all resources; they are closed on leaving. Unless it `learns`, the model makes no
        memories of what is said to it. Raises StorageError and ConfigError."""
        config = configuration.config
        address = log_address(config) if uses_log_database else store_address(config, name)
        async with (
            Database.open(address, checked=True) as database,
            TokenAccounting.open(database) as accounting,
            AgentClient.open(configuration.agent, accounting.record) as client,
        ):
            own = cls(name, configuration, status, clock, database, accounting, client)
            await own.runs.interrupt()  # close the runs that the last process did not finish
            settings, memories = config.section(MemorySettings), Memories(database)
            if not learns:
                settings = settings.model_copy(update={"learn": "off"})
            own.memory = TendrilMemory(
                name, settings, client, own.catalog, clock, own.jobs, memories
            )
            own.shared_memory = SharedMemory(name, database, config.data, settings)
            await own.memory.schedule_check()
            yield own

"""A store, and the log in it, in each kind of database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from storage.db.database import Database
from storage.log import ChatLog
from tests.kit.stores import Stores


@pytest.fixture
async def database(stores: Stores) -> AsyncIterator[Database]:
    """The store called "irc", open."""
    async with Database.open(stores("irc")) as database:
        yield database


@pytest.fixture
async def log(database: Database) -> AsyncIterator[ChatLog]:
    """The log of `database`, which stores what is queued."""
    async with ChatLog.open(database) as log:
        yield log

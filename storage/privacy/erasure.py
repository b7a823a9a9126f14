"""The right to be forgotten: a person's events, and whatever the bot has kept because of them.

What goes: the events; the bot's replies to them, and lines in which it quotes them; the turns of
its memory that they began or that quote them, in every tendril's file, with all that was made of
these, and their traces; what it remembers about the person; their reminders; long answers and
messages on their way that quote them; vectors, with their events. What others have said stays, also
about the person. Deleted words are overwritten in the file, in the index and in the write-ahead
log.

Whose an event is: for somebody who asks for it themselves, `Person`; for whoever keeps the file, a
nick or an account (`NamedPerson`), which they answer for.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from storage.chat_log.event import EVERYTHING, Event
from storage.db.database import Database
from storage.db.secure_delete import secure_delete
from storage.log import ChatLog, Query
from storage.memory.deletion import DeletedTurn, forget_people, scrub
from storage.memory.taught_skills import SkillTable
from storage.privacy.quote_detector import QuoteDetector
from storage.queues.attention_state import AttentionStore
from storage.queues.reminders import Owner, Reminders
from storage.runs.runs import Runs
from storage.usage.token_spending import Spending

_PIECE = 5_000  # events in memory at once


@dataclass(frozen=True, slots=True)
class Person:
    """A person who is on a network now and asks for themselves.

    Theirs is what was said under the account that they are logged in to. Besides, under any
    account or none, only what has their very nick, user name and host and was said by nobody
    logged in: a borrowed nick comes from another host, and proves nothing.
    """

    network: str
    nick: str
    user: str
    host: str
    account: str | None

    def queries(self) -> list[Query]:
        """Return the queries that find at least their events."""
        query = Query(scope=EVERYTHING, network=self.network, own=False)
        mask = replace(query, nick=self.nick, user=self.user, host=self.host)
        return [mask, *([replace(query, account=self.account)] if self.account else [])]

    @property
    def names(self) -> set[str]:
        """Their names."""
        return {self.nick}

    @property
    def owner(self) -> Owner:
        """The person as the owner of reminders."""
        return Owner(self.network, self.nick, self.user, self.host, self.account)

    def owns(self, event: Event) -> bool:
        """Return True if a found event is theirs."""
        if not self.user or not self.host:
            return event.account is not None and event.account == self.account
        return event.account is None or event.account == self.account


@dataclass(frozen=True, slots=True)
class NamedPerson:
    """A nick, or an account, of one network or of all, with everything under it."""

    network: str | None
    nick: str | None = None
    account: str | None = None

    def queries(self) -> list[Query]:
        """Return the query that finds their events."""
        query = Query(scope=EVERYTHING, network=self.network, own=False)
        return [replace(query, nick=self.nick, account=self.account)]

    @property
    def names(self) -> set[str]:
        """Their names."""
        return {self.nick} if self.nick else set()

    def owns(self, event: Event) -> bool:
        """Return True: every found event is theirs."""
        return True


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The number of events of the person, and of lines and turns of the bot, that were removed."""

    events: int = 0
    replies: int = 0
    turns: int = 0


async def count(log: ChatLog, person: Person | NamedPerson) -> int:
    """Count the events of a person."""
    return len(await _events_of(log, person, QuoteDetector()))


async def forget(
    database: Database, log: ChatLog, person: Person | NamedPerson, others: Sequence[Path] = ()
) -> Forgotten:
    """Remove a person from the log in `database`, and from the files of other tendrils.

    Raises StorageError; it can then be done again.
    """
    detector = QuoteDetector()
    events = await _events_of(log, person, detector)
    ids = {event.id for event in events}
    names = person.names | {event.nick for event in events}
    if not ids and not await _has_reminders(database, person):
        return Forgotten()
    replies = await _replies(log, ids, detector)

    def theirs(room: str) -> bool:
        return person.network is None or room.startswith(f"{person.network}/")

    async with secure_delete(database):
        turns = await _turns_of(database, lambda row: row["anchor"] in ids, detector)
        await _forget_turns(database, turns, detector, names, theirs)
        await Runs(database).forget(ids, person.network, names, detector.within)
        await _forget_texts(database, detector)
        await _forget_reminders(database, person)
        await AttentionStore(database).forget(person.network, names, ids)
        await Spending(database).forget_names()
        await SkillTable(database).forget_of(person.nick, detector.within)
        await log.remove(sorted(ids | replies))
        await log.scrub()
    elsewhere = [await _forget_elsewhere(path, person.network, names, detector) for path in others]
    return Forgotten(len(ids), len(replies), len(turns) + sum(elsewhere))


async def _has_reminders(database: Database, person: Person | NamedPerson) -> bool:
    """Return True if a person who has said nothing may have reminders."""
    if isinstance(person, NamedPerson):
        return True
    return bool(await Reminders(database).for_owner(person.owner))


async def _forget_reminders(database: Database, person: Person | NamedPerson) -> None:
    if isinstance(person, NamedPerson):
        kept = Reminders(database)
        await kept.forget_named(person.network, person.nick, person.account)
    else:
        await Reminders(database).forget(person.owner)


def other_files(data: Path, log: Path) -> list[Path]:
    """Return the files in the data folder, beside the log, in which tendrils keep things."""
    return [path for path in sorted(data.glob("*.db")) if path != log and _is_ours(path)]


async def _events_of(
    log: ChatLog, person: Person | NamedPerson, detector: QuoteDetector
) -> list[Event]:
    found: dict[int, Event] = {}
    for query in person.queries():
        async for event in _iterate(log, query):
            if person.owns(event) and event.id not in found:
                found[event.id] = replace(event, text="")  # the words are in `quotes`
                detector.add([event])
    return list(found.values())


async def _replies(log: ChatLog, ids: set[int], detector: QuoteDetector) -> set[int]:
    """Return the bot's lines that answer these events, or quote them, or were said in private to
    the one who said them."""
    replies: set[int] = set()
    if not ids:
        return replies
    to_them: dict[str, bool] = {}  # of each private conversation: were they the last who spoke?
    async for event in _iterate(log, Query(scope=EVERYTHING, after_id=min(ids) - 1)):
        place = f"{event.network}/{event.channel}"
        if not event.own:
            to_them[place] = event.private and event.id in ids
        elif event.reply_to in ids or to_them.get(place) or detector.within(event.text):
            replies.add(event.id)
            detector.add([event])
    return replies


async def _iterate(log: ChatLog, query: Query) -> AsyncIterator[Event]:
    last = query.after_id or 0
    while True:
        piece = replace(query, after_id=last, limit=_PIECE)
        events = await log.find(piece, newest=False)
        for event in events:
            yield event
        if len(events) < _PIECE:
            return
        last = events[-1].id


async def _turns_of(
    database: Database, asked: Callable[[sqlite3.Row], bool], detector: QuoteDetector
) -> list[DeletedTurn]:
    """Return the turns that were `asked`, or quote."""
    rows = await database.fetch_all(
        "SELECT t.id, anchor, messages, room, name FROM turns t"
        " JOIN conversations c ON c.id = conversation_id"
    )
    return [
        DeletedTurn(row["id"], row["room"], row["name"])
        for row in rows
        if asked(row) or detector.within(_said_in(row["messages"]))
    ]


async def _forget_turns(
    database: Database,
    turns: Sequence[DeletedTurn],
    detector: QuoteDetector,
    names: Collection[str] = (),
    in_room: Callable[[str], bool] = lambda _: False,
) -> None:
    """Remove turns, and before them what was made of them: it can be found while they are there."""
    await forget_people(database, names, in_room, turns, detector.within)
    async with database.transaction() as db:
        await db.executemany("DELETE FROM turns WHERE id = ?", [[turn.id] for turn in turns])
    await scrub(database)


def _said_in(messages: str) -> str:
    """Return the text of all messages of a turn, with the log lines that stand before a
    question."""
    kept = json.loads(messages)
    texts = [str(message.get("content") or "") for message in kept]
    return "\n".join([*texts, *(line for message in kept for line in message.get("said", ()))])


async def _forget_texts(database: Database, detector: QuoteDetector) -> None:
    """Remove long answers, and messages on their way, that quote."""
    for table in ("pastes", "outbox"):
        rows = await database.fetch_all(f"SELECT id, text FROM {table}")
        gone = [[row["id"]] for row in rows if detector.within(row["text"])]
        if gone:
            async with database.transaction() as db:
                await db.executemany(f"DELETE FROM {table} WHERE id = ?", gone)


async def _forget_elsewhere(
    path: Path, network: str | None, names: set[str], detector: QuoteDetector
) -> int:
    async with Database.open(path) as database, secure_delete(database):
        await Runs(database).forget((), network, names, detector.within)
        turns = await _turns_of(database, lambda row: False, detector)
        await _forget_turns(database, turns, detector)
        await _forget_texts(database, detector)
        await Spending(database).forget_names()
        await SkillTable(database).forget_of(None, detector.within)
        return len(turns)


def _is_ours(path: Path) -> bool:
    """Return True if a file has the tables of a tendril: other programs may keep files there
    too."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            found = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'turns'").fetchone()
    except sqlite3.Error:
        return False
    return found is not None

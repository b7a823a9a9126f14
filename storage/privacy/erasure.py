"""The right to be forgotten: a person's events, and whatever the bot has kept because of them.

What goes: the events; the bot's replies to them, and lines in which it quotes them; the turns of
its memory that they began or that quote them, in every tendril's file, with all that was made of
these, and their traces; what it remembers about the person; their reminders; long answers and
messages on their way that quote them; vectors, with their events. What others have said stays, also
about the person. Deleted words are overwritten in the file, in the index and in the write-ahead
log.

Whose an event is: for somebody who asks for it themselves, `Person`; for whoever keeps the file, a
nick or an account (`NamedPerson`), which they answer for.

A forgetting takes several files and many transactions, and ends in all of them or goes on: what is
to be done is recorded first (`PendingErasure`), and each step is ticked off. Every step may be done
again. The record is in the log's own file; at the end it loses the person, then the file is
rewritten, and only then it goes: whenever that is interrupted, a rewriting is still to come.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import structlog

from storage.chat_log.event import EVERYTHING, Event, Scope
from storage.chat_log.opt_outs import name_of
from storage.db.database import Address, Connection, Database
from storage.db.errors import StorageError, Unavailable
from storage.db.secure_delete import remove_copies, secure_delete
from storage.log import ChatLog, Query
from storage.memory.deletion import DeletedTurn, forget_people, scrub
from storage.memory.taught_skills import SkillTable
from storage.privacy.audit_log import AuditLog
from storage.privacy.pending_erasures import (
    PendingErasure,
    PendingErasures,
    has_pending_erasures,
)
from storage.privacy.quote_detector import QuoteDetector
from storage.queues.attention_state import AttentionStore
from storage.queues.reminders import Owner, Reminders
from storage.runs.runs import Runs
from storage.usage.token_spending import Spending

_PIECE = 5_000  # events in memory at once
_COPIES, _RECORDS, _EVENTS = "copies", "records", "events"
"""Steps beside those that are named after another tendril's file."""
_PATIENCE = 60.0  # seconds to wait for another process that forgets
_LOOK = 0.1  # seconds until it is looked whether it still does

_log = structlog.get_logger()


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
    """The number of events of the person, and of lines and turns of the bot, that were removed;
    unless it `is_finished`, something is left, which `finish_erasures` goes on with."""

    events: int = 0
    replies: int = 0
    turns: int = 0
    is_finished: bool = True


async def count(log: ChatLog, person: Person | NamedPerson) -> int:
    """Count the events of a person."""
    return len(await _events_of(log, person, QuoteDetector()))


async def forget(
    database: Database,
    log: ChatLog,
    person: Person | NamedPerson,
    data: Path | None = None,
    actor: str = "",
) -> Forgotten:
    """Remove a person from the log in `database`, and from the files of all tendrils in the folder
    `data` (default: that of the log); finish what was begun before, too.

    `actor` is who the audit log says has done it. Raises StorageError when that could not even be
    recorded: then nothing is removed. After any later error the result is not finished.
    """
    folder = data or _folder_of(database)
    erasure = await _plan(database, log, person, folder, actor)
    number = await PendingErasures(database).add(erasure) if erasure else 0
    try:
        finished = await finish_erasures(database, log, folder)
    except StorageError as error:
        _log.error("erasure.not_begun", error=str(error))
        finished = {number: Forgotten(is_finished=False)}
    if erasure is None:
        return Forgotten(is_finished=all(each.is_finished for each in finished.values()))
    # Another process may have finished it meanwhile.
    known = finished.get(number, Forgotten())
    return replace(known, events=erasure.removed_events, replies=erasure.removed_replies)


async def finish_erasures(database: Database, log: ChatLog, data: Path) -> dict[int, Forgotten]:
    """Go on with every forgetting that is not finished; return what became of each, by its id.

    One process of those that work on the folder `data` does so at a time. Raises StorageError.
    """
    finished: dict[int, Forgotten] = {}
    async with _exclusive(data):
        for erasure in await PendingErasures(database).list_all():
            try:
                finished[erasure.id] = await _carry_out(database, log, data, erasure)
            except StorageError as error:
                _log.error("erasure.not_finished", error=str(error))
                finished[erasure.id] = _forgotten(erasure, is_finished=False)
    return finished


async def resume_erasures(log: Address, data: Path) -> bool:
    """Go on with what is not finished in a log, if there is one; return True unless something is
    left then. Raises StorageError."""
    if isinstance(log, Path) and not await asyncio.to_thread(has_pending_erasures, log):
        return True
    async with Database.open(log) as database:
        finished = await finish_erasures(database, ChatLog(database), data)
    return all(each.is_finished for each in finished.values())


def _folder_of(database: Database) -> Path:
    address = database.address
    return address.parent if isinstance(address, Path) else Path("data")


async def _plan(
    database: Database, log: ChatLog, person: Person | NamedPerson, data: Path, actor: str
) -> PendingErasure | None:
    """Return what is to be done in order to forget a person; None if there is nothing."""
    detector = QuoteDetector()
    events = await _events_of(log, person, detector)
    others = await database.neighbours(data)
    if not events and not await _has_reminders(database, person, others.values()):
        return None
    ids = frozenset(event.id for event in events)
    names = _names_of(person, events)
    replies = await _replies(log, ids, detector)
    replies |= await _said_in_their_rooms(log, person.network, names, ids, detector)
    return PendingErasure(
        actor=actor,
        network=person.network,
        person=json.dumps({"kind": type(person).__name__} | asdict(person)),
        names=names,
        hosts=frozenset({event.host for event in events if event.host}),
        events=ids,
        replies=frozenset(replies),
        detector=detector,
        steps=(*others, _COPIES, _RECORDS, _EVENTS),
        removed_events=len(ids),
        removed_replies=len(replies),
    )


def _names_of(person: Person | NamedPerson, events: Sequence[Event]) -> frozenset[str]:
    """Return the nicks of a person and the names of their private rooms, `~account` and
    `nick!user@host`: nicks and accounts also folded, and with slashes escaped, as they are in the
    names of rooms and conversations."""
    names: set[str] = set()
    for fold in (str, _fold):
        names.update(map(fold, person.names), (fold(event.nick) for event in events))
        for event in events:
            if event.host:
                names.add(f"{fold(event.nick)}!{event.user}@{event.host}")
        if person.account:
            names.add(f"~{fold(person.account)}")
    escaped = {name.replace("%", "%25").replace("/", "%2F") for name in names}
    return frozenset(names | escaped)


def _fold(name: str) -> str:
    return name_of("", name)[1]


async def _carry_out(
    database: Database, log: ChatLog, data: Path, erasure: PendingErasure
) -> Forgotten:
    """Do the steps that are left; return what has been removed so far. Raises StorageError.

    The log comes first, so that no tendril can quote from it what its own file has just lost.
    """
    pending = PendingErasures(database)
    in_log = [step for step in erasure.steps if step in (_RECORDS, _EVENTS)]
    if not in_log:
        erasure = await _forget_elsewhere(pending, database, data, erasure)
        if erasure.steps:
            return _forgotten(erasure, is_finished=False)
    async with secure_delete(database):
        if _RECORDS in in_log:
            turns = await _forget_records(database, erasure)
            erasure = await _tick_off(pending, erasure, _RECORDS, turns)
        if _EVENTS in in_log:
            await log.remove(sorted(erasure.events | erasure.replies))
            await log.scrub()
            erasure = await _tick_off(pending, erasure, _EVENTS)
        erasure = await _forget_elsewhere(pending, database, data, erasure)
        if not erasure.steps:
            await pending.make_nameless(erasure.id)
    if erasure.steps:
        return _forgotten(erasure, is_finished=False)
    # Another process may have made a copy since they were removed.
    await asyncio.to_thread(remove_copies, database.address, data)
    await pending.finish(erasure)
    return _forgotten(erasure, is_finished=True)


async def _forget_elsewhere(
    pending: PendingErasures, database: Database, data: Path, erasure: PendingErasure
) -> PendingErasure:
    """Do the steps outside the log's database. One that fails stays, and the others are done."""
    others = await database.neighbours(data)
    for step in erasure.steps:
        try:
            turns = 0
            if step == _COPIES:
                await asyncio.to_thread(remove_copies, database.address, data)
            elif step in others:
                turns = await _forget_in(others[step], erasure)
            erasure = await _tick_off(pending, erasure, step, turns)
        except StorageError as error:
            _log.error("erasure.step_failed", step=step, error=str(error))
    return erasure


async def _tick_off(
    pending: PendingErasures, erasure: PendingErasure, step: str, turns: int = 0
) -> PendingErasure:
    await pending.tick_off(erasure.id, step, turns)
    left = tuple(each for each in erasure.steps if each != step)
    return replace(erasure, steps=left, removed_turns=erasure.removed_turns + turns)


def _forgotten(erasure: PendingErasure, *, is_finished: bool) -> Forgotten:
    return Forgotten(
        erasure.removed_events, erasure.removed_replies, erasure.removed_turns, is_finished
    )


async def _forget_records(database: Database, erasure: PendingErasure) -> int:
    """Remove what a tendril's file has beside the log; return how many turns there were."""
    person, detector, names = _person(erasure.person), erasure.detector, erasure.names
    network, ids = erasure.network, erasure.events

    def theirs(room: str) -> bool:
        return network is None or room.startswith(f"{network}/")

    turns = await _turns_of(database, ids, detector)
    await _forget_turns(database, turns, detector, names, theirs)
    await Runs(database).forget(ids, network, names, detector.within)
    await _forget_texts(database, network, names, detector)
    await _forget_reminders(database, person)
    await AttentionStore(database).forget(network, names, ids)
    await Spending(database).forget_names()
    for name in names or [None]:
        await SkillTable(database).forget_of(name, detector.within)
    await AuditLog(database).forget(network, names, erasure.hosts, detector.within)
    return len(turns)


async def _has_reminders(
    database: Database, person: Person | NamedPerson, others: Iterable[Address]
) -> bool:
    """Return True if a person who has said nothing may have reminders, there or in other files."""
    if isinstance(person, NamedPerson) or await Reminders(database).for_owner(person.owner):
        return True
    for address in others:
        async with Database.open(address) as other:
            if await Reminders(other).for_owner(person.owner):
                return True
    return False


async def _forget_reminders(database: Database, person: Person | NamedPerson) -> None:
    if isinstance(person, NamedPerson):
        kept = Reminders(database)
        await kept.forget_named(person.network, person.nick, person.account)
    else:
        await Reminders(database).forget(person.owner)


def _person(text: str) -> Person | NamedPerson:
    """Return the person of a JSON object that `_plan` made."""
    values = json.loads(text)
    kind = values.pop("kind")
    return Person(**values) if kind == Person.__name__ else NamedPerson(**values)


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


async def _replies(log: ChatLog, ids: Collection[int], detector: QuoteDetector) -> set[int]:
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


async def _said_in_their_rooms(
    log: ChatLog,
    network: str | None,
    names: Collection[str],
    ids: Collection[int],
    detector: QuoteDetector,
) -> set[int]:
    """Return the bot's lines in private conversations named after the person, in which nobody else
    has spoken: notices of before they said a word there, or that answer what was not logged."""
    people = {name.lower() for name in names}
    found: set[int] = set()
    for channel in await log.channels(EVERYTHING):
        place = channel.place
        if not channel.private or place.channel.lower() not in people:
            continue
        if network is None or place.network == network:
            query = Query(scope=Scope.from_places(place))
            events = [event async for event in _iterate(log, query)]
            if all(event.own or event.id in ids for event in events):
                own = [event for event in events if event.own]
                found.update(event.id for event in own)
                detector.add(own)
    return found


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
    database: Database, ids: Collection[int], detector: QuoteDetector
) -> list[DeletedTurn]:
    """Return the turns that one of the events began, or that quote."""

    def select(db: Connection) -> list[DeletedTurn]:
        rows = db.execute(
            "SELECT t.id, anchor, messages, room, name FROM turns t"
            " JOIN conversations c ON c.id = conversation_id"
        )
        return [
            DeletedTurn(row["id"], row["room"], row["name"])
            for row in rows
            if row["anchor"] in ids or detector.within(_said_in(row["messages"]))
        ]

    return await database.read(select)


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


async def _forget_texts(
    database: Database, network: str | None, names: Collection[str], detector: QuoteDetector
) -> None:
    """Remove long answers to the person, and those and messages and questions on their way that
    quote."""
    people = {name.lower() for name in names}
    pastes = await database.fetch_all("SELECT id, network, channel, nick, text FROM pastes")
    messages = await database.fetch_all("SELECT id, text FROM outbox")
    gone_pastes = [
        [row["id"]]
        for row in pastes
        if (
            network in (None, row["network"])
            and {row["nick"].lower(), row["channel"].lower()} & people
        )
        or detector.within(row["text"])
    ]
    gone_messages = [[row["id"]] for row in messages if detector.within(row["text"])]
    asked = await database.fetch_all("SELECT id, question, answer FROM peer_questions")
    gone_questions = [
        [row["id"]] for row in asked if detector.within(f"{row['question']}\n{row['answer']}")
    ]
    if gone_pastes or gone_messages or gone_questions:
        async with database.transaction() as db:
            await db.executemany("DELETE FROM peer_questions WHERE id = ?", gone_questions)
            await db.executemany("DELETE FROM pastes WHERE id = ?", gone_pastes)
            await db.executemany("DELETE FROM outbox WHERE id = ?", gone_messages)


async def _forget_in(address: Address, erasure: PendingErasure) -> int:
    """Remove the person from the database of another tendril; return how many turns there were."""
    async with Database.open(address) as database, secure_delete(database):
        return await _forget_records(database, erasure)


@asynccontextmanager
async def _exclusive(data: Path) -> AsyncIterator[None]:
    """Be the only one who forgets in a folder. The kernel frees the lock however a process ends.

    Raises Unavailable when another one holds it for a minute.
    """
    path = data / "run" / "erasure.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise Unavailable(f"{path}: cannot be opened: {error.strerror}") from error
    with file:
        try:
            async with asyncio.timeout(_PATIENCE):
                while True:
                    if _try_lock(file.fileno()):
                        break
                    await asyncio.sleep(_LOOK)
        except TimeoutError as error:
            raise Unavailable(f"{path}: another process is still at it") from error
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

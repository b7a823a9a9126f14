"""The right to be forgotten: erasure of a person's events and of everything derived from them.

Erased are: the events, with their vectors; the bot's replies to them, and its lines that quote
them; in every tendril's store, turns in which the person asked something or that quote them, with
the memories made of these turns and their traces; memories about the person; their reminders, and
what they were to be told; long answers, and messages waiting in the outbox, that quote them. What
others have said stays, even if it is about the person. Deleted words are overwritten in the files,
indexes and write-ahead logs.

A text quotes an event if that was recorded when the text was made (`llm.messages.message`). Words
are not compared: whoever says what stands in somebody else's private conversation, and then asks to
be forgotten, must neither remove any of it nor learn that it is there.

An erasure is completed in all files even after a crash: it is recorded first, in the log's own
store (`PendingErasure`), each step is ticked off once it is done, and every step is idempotent. At
the end the person is removed from the record, then the file is rewritten, and only then the record
is deleted: so after an interruption at any point a rewrite of the file is still pending.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from storage.chat_log import deletion, statistics
from storage.chat_log.event import EVERYTHING, Event, Place, Scope
from storage.chat_log.event_table import answers_quoting
from storage.chat_log.journal import remove_events
from storage.chat_log.opt_outs import person_of
from storage.db.database import Address, Connection, Database, to_micros
from storage.db.errors import StorageError
from storage.db.secure_delete import remove_copies, secure_delete
from storage.log import ChatLog, Query
from storage.memory.deletion import DeletedTurn, forget_people, scrub
from storage.memory.skills import SkillTable
from storage.privacy.audit_log import AuditLog
from storage.privacy.pending_erasures import PendingErasure, PendingErasures, erasure_lock
from storage.queues.reminders import Owner, Reminders, Tells
from storage.runs.runs import Runs
from storage.usage.usage import Spending

_COPIES, _RECORDS, _EVENTS = "copies", "records", "events"
"""The steps that are not named after another tendril's store."""
_STORE_SUFFIX = ".db"
"""The end of the steps that are: "web.db", in PostgreSQL too, because the table of pending erasures
moves between the two kinds of database. It keeps a tendril called "events" apart from the step."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Person:
    """A person who is on a network now and asks for their own erasure.

    Theirs are the events under the account that they are logged in to, if any, and the events that
    have exactly their nick, user name and host and come from nobody else's account. A nick alone
    proves nothing: somebody who borrows it has another host.
    """

    network: str
    nick: str
    user: str
    host: str
    account: str | None
    key: str = ""  # by which memory knows them; it lacks in records of earlier versions

    def queries(self) -> list[Query]:
        """Return queries that together find their events and possibly more, see `owns`."""
        query = Query(scope=EVERYTHING, network=self.network, own=False)
        mask = replace(query, nick=self.nick, user=self.user, host=self.host)
        return [mask, *([replace(query, account=self.account)] if self.account else [])]

    @property
    def names(self) -> set[str]:
        """The nick of the person, and the name by which memory knows them."""
        return {self.nick, self.key or self.nick}

    @property
    def owner(self) -> Owner:
        """The person as the owner of reminders."""
        return Owner(self.network, self.nick, self.user, self.host, self.account)

    def owns(self, event: Event) -> bool:
        """Return True if an event that the queries found is theirs."""
        # Without user name and host the mask is just a nick, which anybody may have had.
        if not self.user or not self.host:
            return event.account is not None and event.account == self.account
        return event.account is None or event.account == self.account


@dataclass(frozen=True, slots=True)
class NamedPerson:
    """Everybody with a nick or an account, on one network or (None) on all: for the operator."""

    network: str | None
    nick: str | None = None
    account: str | None = None

    def queries(self) -> list[Query]:
        """Return the query that finds their events."""
        query = Query(scope=EVERYTHING, network=self.network, own=False)
        return [replace(query, nick=self.nick, account=self.account)]

    @property
    def names(self) -> set[str]:
        """The nick, if there is one, as a set."""
        return {self.nick} if self.nick else set()

    def owns(self, event: Event) -> bool:
        """Return True, because the query finds only their events."""
        return True


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The result of an erasure: how many events of the person were removed.

    Of what others have asked or been answered nothing is counted. Unless it `is_finished`, steps
    are left, which `finish_erasures` goes on with.
    """

    events: int = 0
    is_finished: bool = True


async def count(log: ChatLog, person: Person | NamedPerson) -> int:
    """Count the events of a person."""
    return len(await _events_of(log, person))


async def forget(
    log: ChatLog, person: Person | NamedPerson, data: Path, actor: str = ""
) -> Forgotten:
    """Erase a person from a log and from the stores of all tendrils, which with SQLite are in the
    folder `data`; also finish earlier erasures that are pending.

    `actor` is named in the audit log. Raises StorageError if the erasure could not be recorded, in
    which case nothing is removed. After any later error the result is not finished.
    """

    def may_own(event: Event) -> bool:
        return person.network in (None, event.network) and (
            (person.nick is not None and person_of(event.nick) == person_of(person.nick))
            or (person.account is not None and event.account == person.account)
        )

    await asyncio.to_thread(remove_events, data, may_own)  # which are not in the log yet
    erasure = await _plan(log, person, data, actor)
    number = await PendingErasures(log.database).add(erasure) if erasure else 0
    try:
        finished = await finish_erasures(log, data)
    except StorageError as error:
        _log.error("erasure.not_begun", error=str(error))
        finished = {number: Forgotten(is_finished=False)}
    if erasure is None:
        return Forgotten(is_finished=all(each.is_finished for each in finished.values()))
    # Missing, if another process has finished it meanwhile.
    known = finished.get(number, Forgotten())
    return replace(known, events=erasure.removed_events)


async def finish_erasures(log: ChatLog, data: Path) -> dict[int, Forgotten]:
    """Go on with every pending erasure, under a lock; return the result of each by its id. Raises
    StorageError; an error of a single erasure makes only its result unfinished."""
    finished: dict[int, Forgotten] = {}
    async with erasure_lock(log.database, data):
        for erasure in await PendingErasures(log.database).list_all():
            try:
                is_finished = await _carry_out(log, data, erasure)
            except StorageError as error:
                _log.error("erasure.not_finished", error=str(error))
                is_finished = False
            finished[erasure.id] = Forgotten(erasure.removed_events, is_finished)
    return finished


async def remove_line(log: ChatLog, place: Place, msgid: str, data: Path) -> None:
    """Remove the line of a place that has this IRCv3 message id from a log, our lines that answer
    or quote it, and what was made of it, also in the stores of other tendrils, which with SQLite
    are in the folder `data`. Raises StorageError."""
    database = log.database
    rows = await database.fetch_all("SELECT id FROM events WHERE msgid = ?", [msgid])
    named = frozenset(row["id"] for row in rows)
    found = await log.find(Query(scope=Scope.from_places(place), ids=named)) if named else []
    ids = frozenset(event.id for event in found)
    if not ids:
        return
    replies = await _replies(log, ids)
    async with AsyncExitStack() as stack:
        others = (await database.neighbours(data)).values()
        opened = [await stack.enter_async_context(Database.open(other)) for other in others]
        for store in (database, *opened):
            await _forget_texts(store, place.network, (), ids)
            await forget_people(store, (), lambda _: False, await _turns_of(store, ids))
            await scrub(store)
            await Runs(store).forget(ids, place.network, ())
    await deletion.remove(database, sorted(ids | replies))
    await log.scrub()


async def resume_erasures(log: Address, data: Path) -> bool:
    """Go on with the pending erasures of a log, if it exists; return True if none is left. Raises
    StorageError."""
    if isinstance(log, Path) and not log.exists():
        return True
    async with Database.open(log) as database:
        finished = await finish_erasures(ChatLog(database), data)
    return all(each.is_finished for each in finished.values())


async def _plan(
    log: ChatLog, person: Person | NamedPerson, data: Path, actor: str
) -> PendingErasure | None:
    """Return the erasure of a person, not yet recorded; None if there is nothing of theirs."""
    events = await _events_of(log, person)
    others = await log.database.neighbours(data)
    if not events and isinstance(person, Person):
        has_reminders = bool(await Reminders(log.database).for_owner(person.owner))
        for address in others.values():
            if not has_reminders:
                async with Database.open(address) as other:
                    has_reminders = bool(await Reminders(other).for_owner(person.owner))
        if not has_reminders:
            return None
    ids = frozenset(event.id for event in events)
    # The nicks of the person and the names of their private rooms, `~account` and `nick!user@host`,
    # as written and folded; below also escaped, as in the names of rooms and conversations.
    names: set[str] = set()
    for fold in (str, person_of):
        names.update(map(fold, person.names), (fold(event.nick) for event in events))
        names |= {f"{fold(each.nick)}!{each.user}@{each.host}" for each in events if each.host}
        if person.account:
            names.add(f"~{fold(person.account)}")
    names |= {name.replace("%", "%25").replace("/", "%2F") for name in names}
    replies = await _replies(log, ids)
    replies |= await _said_in_their_rooms(log, person.network, names, ids)
    return PendingErasure(
        actor=actor,
        network=person.network,
        person=json.dumps({"kind": type(person).__name__} | asdict(person)),
        names=frozenset(names),
        hosts=frozenset({event.host for event in events if event.host}),
        events=ids,
        replies=frozenset(replies),
        steps=(*(f"{name}{_STORE_SUFFIX}" for name in others), _COPIES, _RECORDS, _EVENTS),
        removed_events=len(ids),
    )


async def _carry_out(log: ChatLog, data: Path, erasure: PendingErasure) -> bool:
    """Do the remaining steps; return False if some could not be done. Raises StorageError. The log
    comes first, so that no tendril can quote from it what was just removed from its own store."""
    database = log.database
    pending = PendingErasures(database)
    in_log = [step for step in erasure.steps if step in (_RECORDS, _EVENTS)]
    # While other stores keep failing, do not rewrite the log's file at each attempt.
    if not in_log:
        erasure = await _forget_elsewhere(pending, database, data, erasure)
        if erasure.steps:
            return False
    async with secure_delete(database):
        if _RECORDS in in_log:
            await _forget_records(database, erasure)
            erasure = await pending.tick_off(erasure, _RECORDS)
        if _EVENTS in in_log:
            await deletion.remove(database, sorted(erasure.events | erasure.replies))
            await log.scrub()
            erasure = await pending.tick_off(erasure, _EVENTS)
        erasure = await _forget_elsewhere(pending, database, data, erasure)
        # Before the rewrite at the end of this context, which also removes the names' old bytes.
        if not erasure.steps:
            await pending.make_nameless(erasure.id)
    if erasure.steps:
        return False
    # Another process may have made a copy since they were removed.
    await asyncio.to_thread(remove_copies, database.address, data)
    await pending.finish(erasure)
    return True


async def _forget_elsewhere(
    pending: PendingErasures, database: Database, data: Path, erasure: PendingErasure
) -> PendingErasure:
    """Do the steps outside the log's store; one that fails is kept for later."""
    others = await database.neighbours(data)
    for step in erasure.steps:
        try:
            # Older versions recorded steps on PostgreSQL without the suffix.
            store = others.get(step.removesuffix(_STORE_SUFFIX))
            if step == _COPIES:
                await asyncio.to_thread(remove_copies, database.address, data)
            elif store is not None:
                async with Database.open(store) as other, secure_delete(other):
                    await _forget_records(other, erasure)
            else:  # kept, the step of a store that was removed would never let the erasure end
                _log.warning("erasure.store_missing", step=step)
            erasure = await pending.tick_off(erasure, step)
        except StorageError as error:
            _log.error("erasure.step_failed", step=step, error=str(error))
    return erasure


async def _forget_records(database: Database, erasure: PendingErasure) -> None:
    """Remove everything about the person in a tendril's store except log events."""
    names, network, ids = erasure.names, erasure.network, erasure.events
    values = json.loads(erasure.person)  # as `_plan` wrote it
    kind = Person if values.pop("kind") == Person.__name__ else NamedPerson
    person: Person | NamedPerson = kind(**values)

    def theirs(room: str) -> bool:
        return network is None or room.startswith(f"{network}/")

    turns = await _turns_of(database, ids)
    # The turns go last: what was made in them can be found only while they exist.
    asked = {turn.anchor for turn in turns if turn.anchor}
    await _forget_texts(database, network, names, ids | asked)
    await forget_people(database, names, theirs, turns)
    await scrub(database)
    await Runs(database).forget(ids, network, names)
    for kept in (Reminders(database), Tells(database)):
        if isinstance(person, NamedPerson):
            await kept.forget_named(person.network, person.nick, person.account)
        else:
            await kept.forget(person.owner)
        await kept.forget_asked(ids)
    await Spending(database).forget()
    await SkillTable(database).forget_of(names)
    await AuditLog(database).forget(network, names, erasure.hosts)


async def _events_of(log: ChatLog, person: Person | NamedPerson) -> list[Event]:
    found: dict[int, Event] = {}
    for query in person.queries():
        async for events in log.pieces(query):
            # Without the texts, to save memory.
            found |= {each.id: replace(each, text="") for each in events if person.owns(each)}
    return list(found.values())


async def _replies(log: ChatLog, ids: frozenset[int]) -> set[int]:
    """Return the ids of the bot's lines that answer, quote or in private follow these events."""
    if not ids:
        return set()
    quoting = await log.read(answers_quoting, ids)
    replies, answered = set[int](), ids | quoting
    to_them: dict[str, bool] = {}  # by private conversation: was the person the last to speak?
    async for events in log.pieces(Query(scope=EVERYTHING, after_id=min(ids) - 1)):
        for event in events:
            place = f"{event.network}/{event.channel}"
            if not event.own:
                to_them[place] = event.private and event.id in ids
            elif (
                event.id in quoting
                or event.reply_to in answered
                or (event.reply_to is None and to_them.get(place))
            ):
                replies.add(event.id)
    return replies


async def _said_in_their_rooms(
    log: ChatLog, network: str | None, names: Collection[str], ids: Collection[int]
) -> set[int]:
    """Return the ids of the bot's lines in private conversations that are named after the person
    and in which nobody else has spoken: notices before their first line, or answers to lines that
    were not logged."""
    people = {name.lower() for name in names}
    found: set[int] = set()
    for channel in await log.read(statistics.channels, EVERYTHING):
        place = channel.place
        if not channel.private or place.channel.lower() not in people:
            continue
        if network is None or place.network == network:
            query = Query(scope=Scope.from_places(place))
            events = [event async for piece in log.pieces(query) for event in piece]
            if all(event.own or event.id in ids for event in events):
                found.update(event.id for event in events if event.own)
    return found


async def _turns_of(database: Database, ids: frozenset[int]) -> list[DeletedTurn]:
    """Return the turns in which one of the events asked something, or that quote one."""

    def is_of_them(anchor: int, messages: Sequence[Mapping[str, Any]]) -> bool:
        return anchor in ids or any(
            each.get("anchor", 0) in ids
            or not ids.isdisjoint(each.get("quotes", ()))
            or not ids.isdisjoint(each.get("quotes_beside", ()))
            for each in messages
        )

    def select(db: Connection) -> list[DeletedTurn]:
        rows = db.execute(
            "SELECT t.id, anchor, messages, room, name FROM turns t"
            " JOIN conversations c ON c.id = conversation_id"
        )
        return [
            DeletedTurn(turn_id, room, name, anchor)
            for turn_id, anchor, messages, room, name in rows
            if is_of_them(anchor, json.loads(messages))
        ]

    return await database.read(select)


async def _forget_texts(
    database: Database, network: str | None, names: Collection[str], ids: frozenset[int]
) -> None:
    """Remove long answers (pastes) in the person's private rooms, and those, with messages of the
    outbox, that answer or quote one of the events `ids`; also questions between tendrils that were
    left behind by a crash."""
    people = {name.lower() for name in names}
    pastes = await database.fetch_all("SELECT id, network, channel, quotes FROM pastes")
    gone = [
        [row["id"]]
        for row in pastes
        if (network in (None, row["network"]) and row["channel"].lower() in people)
        or not ids.isdisjoint(json.loads(row["quotes"]))
    ]
    messages = await database.fetch_all("SELECT id, quotes FROM outbox")
    unsent = [[row["id"]] for row in messages if not ids.isdisjoint(json.loads(row["quotes"]))]

    def delete(db: Connection) -> None:
        db.executemany("DELETE FROM pastes WHERE id = ?", gone)
        db.executemany("DELETE FROM outbox WHERE id = ?", unsent)
        db.execute("DELETE FROM peer_questions WHERE deadline < ?", [to_micros(datetime.now(UTC))])

    await database.write(delete)

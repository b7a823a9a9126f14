"""Online copy of a store into an empty one, in steps, while others read and write the source.

From the beginning triggers record every change in the source (`storage.transfer.changes`). A step
reads the next rows and the recorded changes from one snapshot of the source, and writes both in one
transaction of the target. So what has been copied always equals a part of one snapshot, and an
interrupted transfer continues with the step that was not committed. Finally the target is compared
with a whole snapshot by checksums of all rows. Only what is written after that, the last delta, is
copied while nobody may write.

The triggers stay in the source after the end, and the target keeps the checksums of what it was
given. So if somebody writes to the source again, by mistake or not, it is noticed: the next run
reopens the transfer, or refuses if the target was written to as well.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from storage import log_index
from storage.chat_log import deletion
from storage.connection import Connection, Dialect
from storage.db.database import Database
from storage.db.secure_delete import secure_delete
from storage.transfer import changes
from storage.transfer.changes import Change
from storage.transfer.checksum import Checksum, checksums, store, stored
from storage.transfer.errors import NotTheSame, TransferRefused
from storage.transfer.tables import CHANGES, EVENTS, STATE, Table, Values, tables

ROWS_PER_STEP = 2_000
"""Maximum number of rows, and of changes, that one step copies."""

_TO_BE_COPIED = ""
_BULK = (  # nobody searches yet: long pending lists of the indexes do no harm, and save time
    "SET LOCAL gin_pending_list_limit = '64MB'",
    "SET LOCAL work_mem = '64MB'",
)
_ASIDE = ", or move the old files (*.db, *.db-wal, *.db-shm) out of the folder first"
_COUNTS_UP = "SELECT 1 FROM sqlite_master WHERE name = ? AND sql LIKE '%AUTOINCREMENT%'"


@dataclass(frozen=True, slots=True)
class _Position:
    """The progress of copying a table: up to the key `after`, or complete if it `is_whole`."""

    after: Values | None = None
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class _Delta:
    """The changed rows of a table: their new values, and the keys of those that were deleted."""

    rows: Sequence[Values]
    gone: Sequence[Values]


@dataclass(frozen=True, slots=True)
class _Piece:
    """The rows that one step copies, all from one snapshot of the source.

    `rows` are the next rows of `table`, and `position` is the progress after them; `deltas` are the
    changed rows behind `changes`, by table. `checksums` are those of the snapshot, for `verify`.
    """

    changes: Sequence[Change]
    deltas: Mapping[str, _Delta]
    table: Table | None = None
    rows: Sequence[Values] = ()
    position: _Position = field(default_factory=_Position)
    checksums: Mapping[str, Checksum] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CopyStep:
    """A step that was completed: how many rows of a table, or how many changes, it copied."""

    table: str
    rows: int


class Transfer:
    """A transfer of all rows of one store into another. Use `begin` to get one."""

    def __init__(
        self, source: Database, target: Database, moved: Sequence[Table], is_over: bool
    ) -> None:
        self._source = source
        self._target = target
        self._tables = moved
        self._positions: dict[str, _Position] = {}
        self.is_over = is_over
        """True once `finish` has returned, in whichever process."""

    def __repr__(self) -> str:
        return f"<Transfer of {self._source} to {self._target}>"

    @classmethod
    async def begin(cls, source: Database, target: Database) -> Transfer:
        """Begin a transfer, or continue one that was begun before.

        Raises TransferRefused when the target holds anything else, and Unavailable.
        """
        # The target's state comes first, and the source's triggers refer to it by its random id: a
        # process killed in between finds a state without rows, and starts recording then.
        postgres = target if target.dialect is Dialect.POSTGRES else source
        moved = await tables(postgres)
        transfer, is_over = await target.read(_state)
        noted = await source.read(changes.current_transfer_id)
        self = cls(source, target, moved, is_over)
        if is_over:
            return self
        if not transfer:
            transfer = secrets.token_hex(8)
            await target.write(lambda db: self._make_state(db, transfer))
        if noted != transfer:
            if await target.read(self._has_rows):
                raise TransferRefused(
                    f"{target.address} has a part of another copy; remove it and begin again"
                )
            await source.write(lambda db: self._note_changes(db, noted, transfer))
        self._positions = await target.read(_positions)
        return self

    async def reopen(self) -> bool:
        """Reopen a finished transfer if the source was written to since; return False if there is
        nothing to copy. Reads every row of both stores.

        Raises TransferRefused when the target would lose what was written to it, or is a copy of
        something else, and Unavailable.
        """
        here = await self._source.read(lambda db: checksums(db, self._tables))
        there = await self._target.read(lambda db: checksums(db, self._tables))
        given = await self._target.read(stored)
        # The source is as the target is, or as it was when given to the target, which may have
        # been used since.
        if here in (there, given):
            return False
        transfer, _ = await self._target.read(_state)
        if there != given or await self._source.read(changes.current_transfer_id) != transfer:
            raise TransferRefused(self._both_changed())
        await self._target.write(self._reopen_state)
        self._positions = await self._target.read(_positions)
        self.is_over = False
        return True

    async def require_untouched(self) -> None:
        """Raise TransferRefused if anybody else has written to the target since `verify`."""
        given = await self._target.read(stored)
        if given and given != await self._target.read(lambda db: checksums(db, self._tables)):
            raise TransferRefused(self._both_changed())

    async def step(self) -> CopyStep | None:
        """Copy the next piece; return None if there was nothing left to copy.

        The step for an empty table copies no rows. Raises NotTheSame, Unavailable.
        """
        piece = await self._source.read(self._next_piece)
        if piece.table is None and not piece.changes:
            return None
        await self._apply(piece)
        if piece.table is not None:
            self._positions[piece.table.name] = piece.position
            return CopyStep(piece.table.name, len(piece.rows))
        return CopyStep(CHANGES, len(piece.changes))

    async def verify(self) -> dict[str, int]:
        """Compare all rows with a snapshot of the source by checksum; return the number of rows of
        each table.

        `step` must have returned None before. Raises NotTheSame, Unavailable.
        """
        piece = await self._source.read(self._whole_piece)
        await self._apply(piece)
        if self._target.dialect is Dialect.POSTGRES:  # its planner has no statistics of them yet
            await self._target.execute_outside_transaction("VACUUM (ANALYZE)")
        found = await self._target.read(lambda db: checksums(db, self._tables))
        for name, wanted in piece.checksums.items():
            if found[name] != wanted:
                raise NotTheSame(_difference(self._target, name, wanted.rows, found[name].rows))
        await self._target.write(lambda db: store(db, found))
        return {name: checksum.rows for name, checksum in found.items()}

    async def finish(self) -> dict[str, int]:
        """Copy the last delta and end the transfer; return the number of rows of each table.

        Nobody may write to the source meanwhile. Raises NotTheSame, Unavailable.
        """
        while await self.step() is not None:
            pass
        await self._apply(await self._source.read(self._rest))
        counted = await self._source.read(self._count)
        found = await self._target.read(self._count)
        for name, wanted in counted.items():
            if found[name] != wanted:
                raise NotTheSame(_difference(self._target, name, wanted, found[name]))
        counters = await self._source.read(self._counters)
        await self._target.write(lambda db: self._end_state(db, counters))
        self.is_over = True
        return found

    def _next_piece(self, db: Connection) -> _Piece:
        changed = changes.read(db, ROWS_PER_STEP)
        table = self._unfinished()
        # The next rows are at the state of the snapshot: they may be copied only together with all
        # changes up to it, so a backlog of changes goes first.
        if table is None or len(changed) == ROWS_PER_STEP:
            return _Piece(changed, self._deltas(db, changed))
        position = self._positions[table.name]
        rows = table.page(db, position.after, ROWS_PER_STEP)
        after = table.key_of(rows[-1]) if rows and table.key else None
        is_whole = len(rows) < ROWS_PER_STEP
        return _Piece(changed, self._deltas(db, changed), table, rows, _Position(after, is_whole))

    def _whole_piece(self, db: Connection) -> _Piece:
        changed = changes.read(db)
        deltas = self._deltas(db, changed) | self._small(db)
        return _Piece(changed, deltas, checksums=checksums(db, self._tables))

    def _rest(self, db: Connection) -> _Piece:
        changed = changes.read(db)
        return _Piece(changed, self._deltas(db, changed) | self._small(db))

    def _unfinished(self) -> Table | None:
        return next((t for t in self._tables if not self._positions[t.name].is_whole), None)

    def _small(self, db: Connection) -> dict[str, _Delta]:
        """Return all rows of the tables without a key, whose changes are not recorded."""
        return {
            table.name: _Delta(table.page(db, None, ROWS_PER_STEP), ())
            for table in self._tables
            if not table.key
        }

    def _deltas(self, db: Connection, changed: Sequence[Change]) -> dict[str, _Delta]:
        """Return the present state of changed rows, except those of tables of which nothing was
        copied yet."""
        deltas: dict[str, _Delta] = {}
        for table in self._tables:
            position = self._positions[table.name]
            keys = [change.key for change in changed if change.table == table.name]
            if keys and (position.is_whole or position.after is not None):
                # Rows beyond the position too: they are overwritten when their page is copied.
                rows = table.rows(db, keys)
                there = {table.key_of(row) for row in rows}
                deltas[table.name] = _Delta(rows, [key for key in keys if key not in there])
        return deltas

    async def _apply(self, piece: _Piece) -> None:
        """Write a piece to the target, check that it is there, and delete its recorded changes.

        The changes are deleted last: after a crash in between they are applied again, which does no
        harm, as a delta is the present state of rows and not a difference.
        """
        events = piece.deltas.get(EVENTS)
        if events and events.gone:  # maybe an erasure: leave no trace of it in the target either
            async with secure_delete(self._target):
                await self._target.write(lambda db: self._write(db, piece))
                await deletion.scrub(self._target)
        else:
            await self._target.write(lambda db: self._write(db, piece))
        await self._target.read(lambda db: self._check(db, piece.deltas))
        if piece.changes:
            await self._source.write(lambda db: changes.forget(db, piece.changes))

    def _write(self, db: Connection, piece: _Piece) -> None:
        if db.dialect is Dialect.POSTGRES:
            for setting in _BULK:
                db.execute(setting)
        given = stored(db)
        before = {name: self._rows_of(db, name, piece.deltas) for name in given}
        # Delete in the reverse order of foreign keys, insert in their order.
        for table in reversed(self._tables):
            if (delta := piece.deltas.get(table.name)) is None:
                continue
            if not table.key:
                db.execute(f"DELETE FROM {table.name}")
            elif delta.gone:
                if table.name == EVENTS:  # the index needs the old rows, so before they are gone
                    _unindex(db, table.rows(db, delta.gone))
                table.delete(db, delta.gone)
        for table in self._tables:
            if delta := piece.deltas.get(table.name):
                _put(db, table, delta.rows)
        if piece.table is not None:
            _put(db, piece.table, piece.rows)
            after, is_whole = piece.position.after, piece.position.is_whole
            db.execute(
                f"UPDATE {STATE} SET after = ?, is_whole = ? WHERE name = ?",
                [json.dumps(after) if after else _TO_BE_COPIED, int(is_whole), piece.table.name],
            )
        # Checksums stored by an earlier `verify` are kept up to date, so that `require_untouched`
        # and `reopen` can tell our own writes from those of others.
        if given and piece.deltas:
            after_it = {name: self._rows_of(db, name, piece.deltas) for name in given}
            store(db, {name: given[name].updated(before[name], after_it[name]) for name in given})

    def _rows_of(self, db: Connection, name: str, deltas: Mapping[str, _Delta]) -> Sequence[Values]:
        """Return the rows of a table that its delta refers to, in their present state."""
        table = next(table for table in self._tables if table.name == name)
        if (delta := deltas.get(name)) is None:
            return ()
        if not table.key:
            return table.page(db, None, ROWS_PER_STEP)
        return table.rows(db, [*map(table.key_of, delta.rows), *delta.gone])

    def _check(self, db: Connection, deltas: Mapping[str, _Delta]) -> None:
        for table in self._tables:
            delta = deltas.get(table.name)
            if delta is None or not table.key:
                continue
            keys = [*map(table.key_of, delta.rows), *delta.gone]
            if set(table.rows(db, keys)) != set(delta.rows):
                raise NotTheSame(f"{self._target.address}: {table.name} did not take a change")

    def _count(self, db: Connection) -> dict[str, int]:
        return {table.name: table.count(db) for table in self._tables}

    def _has_rows(self, db: Connection) -> bool:
        return any(table.page(db, None, 1) for table in self._tables)

    def _make_state(self, db: Connection, transfer: str) -> None:
        if self._has_rows(db):
            raise TransferRefused(
                f"{self._target.address} has something in it already; name an empty place"
                + _ASIDE * isinstance(self._target.address, Path)
            )
        db.execute(
            f"CREATE TABLE {STATE} (name TEXT PRIMARY KEY, after TEXT NOT NULL, is_whole INTEGER)"
        )
        rows = [(table.name, _TO_BE_COPIED, 0) for table in self._tables]
        db.executemany(f"INSERT INTO {STATE} VALUES (?, ?, ?)", [("", transfer, 0), *rows])

    def _note_changes(self, db: Connection, noted: str, transfer: str) -> None:
        if noted:  # for another transfer, which was abandoned
            changes.end(db, self._tables)
        changes.begin(db, self._tables, transfer)

    def _counters(self, db: Connection) -> dict[str, int]:
        """Return the last number of each identity column by table, so that the target does not use
        one a second time."""
        found = {}
        for table in self._tables:
            if table.identity_column:
                found[table.name] = max(
                    _last_number(db, table),
                    int(
                        db.execute(
                            f'SELECT coalesce(max("{table.identity_column}"), 0) FROM {table.name}'
                        ).fetchone()[0]
                    ),
                )
        return found

    def _end_state(self, db: Connection, counters: Mapping[str, int]) -> None:
        for table in self._tables:
            if number := counters.get(table.name):
                _set_last_number(db, table, number)
        db.execute(f"DELETE FROM {STATE} WHERE name <> ''")
        db.execute(f"UPDATE {STATE} SET is_whole = 1")
        if not stored(db):
            store(db, checksums(db, self._tables))

    def _reopen_state(self, db: Connection) -> None:
        db.execute(f"UPDATE {STATE} SET is_whole = 0")
        rows = [(table.name, _TO_BE_COPIED, 1) for table in self._tables]
        db.executemany(f"INSERT INTO {STATE} VALUES (?, ?, ?)", rows)

    def _both_changed(self) -> str:
        return (
            f"{self._target.address} and {self._source.address} were both written to since they"
            " were the same, or one was never a copy of the other; nothing is overwritten: move"
            " into a new, empty place"
        )


def _state(db: Connection) -> tuple[str, bool]:
    """Return the id of the transfer that a target belongs to ("" for none), and whether that is
    over."""
    if not changes.has_table(db, STATE):
        return "", False
    row = db.execute(f"SELECT after, is_whole FROM {STATE} WHERE name = ''").fetchone()
    return str(row[0]), bool(row[1])


def _positions(db: Connection) -> dict[str, _Position]:
    rows = db.execute(f"SELECT name, after, is_whole FROM {STATE} WHERE name <> ''")
    return {
        row[0]: _Position(tuple(json.loads(row[1])) if row[1] else None, bool(row[2]))
        for row in rows
    }


def _put(db: Connection, table: Table, rows: Sequence[Values]) -> None:
    """Upsert rows into a table; events also into the index and the counters."""
    if table.name != EVENTS:
        table.put(db, rows)
        return
    # An event may come twice, as a changed row and with its page. Equal rows must be skipped, and
    # replaced ones be removed from the counters first, or they would count twice.
    known = {row[0]: row for row in table.rows(db, [row[:1] for row in rows])}
    new = [row for row in rows if known.get(row[0]) != row]
    _unindex(db, [known[row[0]] for row in new if row[0] in known])
    table.insert(db, [row for row in new if row[0] not in known])
    table.put(db, [row for row in new if row[0] in known])
    if new:
        drift = max(row[0] - row[3] // 1000 for row in new)
        log_index.add_events(db, new, _private(db), max(0, drift))


def _unindex(db: Connection, rows: Sequence[Values]) -> None:
    if rows:
        log_index.remove_events(db, rows, _private(db))


def _private(db: Connection) -> set[int]:
    return {row[0] for row in db.execute("SELECT id FROM channels WHERE private = 1")}


def _last_number(db: Connection, table: Table) -> int:
    if db.dialect is Dialect.POSTGRES:
        name = db.execute(
            "SELECT pg_get_serial_sequence(?, ?)", [table.name, table.identity_column]
        ).fetchone()[0]
        row = db.execute(f"SELECT last_value, is_called FROM {name}").fetchone()
        return int(row[0]) if row[1] else 0
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", [table.name]).fetchone()
    return int(row[0]) if row else 0


def _set_last_number(db: Connection, table: Table, number: int) -> None:
    if db.dialect is Dialect.POSTGRES:
        db.execute(
            "SELECT setval(pg_get_serial_sequence(?, ?), ?)",
            [table.name, table.identity_column, number],
        )
    elif db.execute(_COUNTS_UP, [table.name]).fetchone():
        db.execute("DELETE FROM sqlite_sequence WHERE name = ?", [table.name])
        db.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", [table.name, number])


def _difference(target: Database, name: str, wanted: int, found: int) -> str:
    counts = f"{found} rows instead of {wanted}" if wanted != found else "other contents"
    return (
        f"{target.address}: {name} has {counts}; the source is as it was, so move into a new, empty"
        " place"
    )

"""Reports of research: the steps done so far and the claims that they found.

A report names the lines of the log that it is about by their ids, and their words are shown from
the log. What a model has written of them goes with them (`prune`): so a report has nothing of
anybody who was erased. An id has 144 random bits, and nothing lists those of private places.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel

from storage.chat_log.event import Place, Scope
from storage.db.database import Connection, Repository, Row, from_micros, to_micros, writes
from storage.queues.reminders import Owner

MAX_OPEN = 10
"""The most reports that are worked on, or wait, on one network."""


class Claim(BaseModel):
    """A sentence with its evidence: ids of `lines` of the log, and `pages` of the web (address, and
    the words there). Without a sentence the lines stand for themselves. It is `urgent` if the model
    wants it told before the report is done."""

    text: str = ""
    lines: list[int] = []
    pages: list[tuple[str, str]] = []
    urgent: bool = False


class Topic(BaseModel):
    """A step of a report: what was looked for, by which `searches`, and the claims found.

    `source` are the lines from which the model made the title and the searches, none if it had only
    the question. `read` is the number of lines and pages that were read.
    """

    title: str = ""
    searches: list[str] = []
    source: list[int] = []
    is_done: bool = False
    read: int = 0
    claims: list[Claim] = []


class ReportContent(BaseModel):
    """The content of a report: the `answer` in short, made of the claims of the `topics`.

    `tokens` have been spent on it. `trouble` is the reason why it ended early, "" for none. An
    extract has threads of the log for topics, and no sentences.
    """

    topics: list[Topic] = []
    answer: list[Claim] = []
    tokens: int = 0
    trouble: str = ""
    is_extract: bool = False

    @property
    def claims(self) -> list[Claim]:
        """The claims of all topics."""
        return [claim for topic in self.topics for claim in topic.claims]

    @property
    def lines(self) -> frozenset[int]:
        """The ids of all lines that anything in it depends on."""
        return frozenset(
            [line for claim in (*self.answer, *self.claims) for line in claim.lines]
            + [line for topic in self.topics for line in topic.source]
        )

    def without(self, gone: frozenset[int]) -> ReportContent:
        """Return the content without all that depends on one of these lines; of an extract, without
        the lines."""

        def left(claims: list[Claim]) -> Iterator[Claim]:
            for claim in claims:
                lines = [line for line in claim.lines if line not in gone]
                if lines == claim.lines:
                    yield claim
                elif lines and not claim.text:
                    yield claim.model_copy(update={"lines": lines})

        topics = [
            topic.model_copy(update={"claims": list(left(topic.claims))})
            for topic in self.topics
            if gone.isdisjoint(topic.source)
        ]
        return self.model_copy(update={"topics": topics, "answer": list(left(self.answer))})


@dataclass(frozen=True, slots=True)
class Report:
    """A report as it was read: asked for by `owner` (with the key `person`) in `place`, over what
    `scope` covers. The content may be saved while the `version` is the same."""

    id: str
    place: Place
    owner: Owner
    person: str
    question_event_id: int
    question: str
    scope: Scope
    is_open: bool
    content: ReportContent
    version: int
    time: datetime


class Reports(Repository):
    """The reports in the database of the log. All methods raise StorageError."""

    async def add(
        self, place: Place, owner: Owner, person: str, asked: int, question: str, scope: Scope
    ) -> str | None:
        """Store an open, empty report; return its id, or None if there are too many open ones."""
        token = secrets.token_urlsafe(18)
        known = (
            None if scope.places is None else sorted([p.network, p.channel] for p in scope.places)
        )
        values = [
            *(token, place.network, place.channel, json.dumps(asdict(owner)), person, asked),
            *(question, json.dumps(known), ReportContent().model_dump_json()),
            to_micros(datetime.now(UTC)),
        ]
        # One statement checks the limits and inserts: two requests at once cannot exceed them.
        sql = (
            "INSERT INTO reports SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 1, ?9, 0, ?10"
            " WHERE NOT EXISTS (SELECT 1 FROM reports WHERE person = ?5 AND is_open = 1)"
            f" AND (SELECT count(*) FROM reports WHERE network = ?2 AND is_open = 1) < {MAX_OPEN}"
        )
        return token if await self._database.execute(sql, values) else None

    async def get(self, token: str) -> Report | None:
        """Return the report with this id."""
        row = await self._database.fetch_one("SELECT * FROM reports WHERE id = ?", [token])
        return _report(row) if row else None

    async def of_person(self, person: str, limit: int = 5) -> list[Report]:
        """Return the newest reports of a person, newest first."""
        sql = "SELECT * FROM reports WHERE person = ? ORDER BY time DESC LIMIT ?"
        return [_report(row) for row in await self._database.fetch_all(sql, [person, limit])]

    async def save(self, report: Report, content: ReportContent, *, ends: bool = False) -> bool:
        """Store the content of an open report, which `ends` with it; False if that has changed."""
        sql = (
            "UPDATE reports SET content = ?, is_open = ?"
            " WHERE id = ? AND version = ? AND is_open = 1"
        )
        values = [content.model_dump_json(), int(not ends), report.id, report.version]
        return await self._database.execute(sql, values) > 0

    async def remove_of(self, place: Place) -> int:
        """Remove all reports that were asked for in a place; return how many."""
        sql = "DELETE FROM reports WHERE network = ? AND channel = ?"
        return await self._database.execute(sql, [place.network, place.channel])

    async def expire(self, days_of: Callable[[Place], int], now: datetime) -> None:
        """Remove the reports that are older than their place's log may be."""
        found = await self._database.fetch_all("SELECT DISTINCT network, channel FROM reports")
        for place in (Place(row["network"], row["channel"]) for row in found):
            if days := days_of(place):
                sql = "DELETE FROM reports WHERE network = ? AND channel = ? AND time < ?"
                oldest = to_micros(now - timedelta(days=days))
                await self._database.execute(sql, [place.network, place.channel, oldest])

    @writes
    def prune(self, db: Connection) -> None:
        """Remove claims, topics and reports that depend on lines no longer in the log."""
        for row in db.execute("SELECT * FROM reports").fetchall():
            report = _report(row)
            asked = report.question_event_id
            ids = report.content.lines | ({asked} if asked else set())
            sql = "SELECT id FROM events WHERE id IN (SELECT value FROM json_each(?))"
            found = {each[0] for each in db.execute(sql, [json.dumps(sorted(ids))])}
            if asked and asked not in found:
                db.execute("DELETE FROM reports WHERE id = ?", [report.id])
            elif gone := ids - found:
                content = report.content.without(gone).model_dump_json()
                sql = "UPDATE reports SET content = ?, version = version + 1 WHERE id = ?"
                db.execute(sql, [content, report.id])


def _report(row: Row) -> Report:
    places = json.loads(row["scope"])
    return Report(
        id=row["id"],
        place=Place(row["network"], row["channel"]),
        owner=Owner(**json.loads(row["owner"])),
        person=row["person"],
        question_event_id=row["asked"],
        question=row["question"],
        scope=Scope(None if places is None else frozenset(Place(*each) for each in places)),
        is_open=bool(row["is_open"]),
        content=ReportContent.model_validate_json(row["content"]),
        version=row["version"],
        time=from_micros(row["time"]),
    )

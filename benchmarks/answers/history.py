"""Questions about facts that were said years ago, among one million lines of #ubuntu.

They are asked of `find`, which uses the full-text search, and of the bot over IRC. The log is built
once, in the folder `BENCH_LOGS` or the system's temporary one, and kept for the next run.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path

from benchmarks.answers.questions import FOLDER, NICKS, ScheduledQuestion, SetItem, questions
from benchmarks.answers.report import AskedQuestion, written
from benchmarks.answers.room import PeopleInRoom
from benchmarks.answers.scoring import NOT_KNOWN, is_line, leaks
from benchmarks.figure import Figure, percentile
from benchmarks.ubuntu import NoCorpus, lines
from storage.chat_log.event import SPOKEN, Event, EventType, Place, Scope
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.search.models import Order, SearchQuery

PLACE = Place("irc", "#ubuntu")
LINES = int(os.environ.get("HISTORY_LINES", "1000000"))
SPAN = timedelta(days=12 * 365)
AGO = (timedelta(days=30), timedelta(days=365), timedelta(days=5 * 365))
_AROUND = timedelta(days=12)  # random deviation of a fact from these times
_BATCH = 5_000
_SHOWN = 10
_SET = "history_unseen"
_STOP = re.compile(
    r"(?:an?|and|are|at|by|can|did|do|does|for|from|had|has|have|how|i|in|is|its?|of|on|or|our|that"
    r"|the|their|this|to|was|were|what(?:'?s)?|when|where|which|who|whom|why|will|with)",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w[\w'.-]*\w|\w")

Find = Callable[[ChatLog, Scope, str], Awaitable[Sequence[Event]]]


async def find(log: ChatLog, scope: Scope, question: str) -> Sequence[Event]:
    """Return at most _SHOWN lines that match a question's content words, best first."""
    words = " ".join(word for word in _WORD.findall(question) if not _STOP.fullmatch(word))
    within = Query(scope=scope, own=False, limit=_SHOWN)
    page = await log.search(SearchQuery(text=words, within=within, order=Order.RANK))
    return [hit.event for hit in page.hits]


async def figures(number: int | None = None) -> AsyncIterator[Figure]:
    """Yield how often the right line is among the first 1, 3 and 10, then the results over IRC.

    `number` limits the questions of each kind.
    """
    try:
        path = await log_with_facts(LINES)
    except NoCorpus as reason:
        print(f"  history skipped: {reason}")
        return
    facts, never = questions(_SET, "facts")[:number], questions(_SET, "never")[:number]
    async for figure in found_figures(path, facts, never, find):
        yield figure
    async for figure in _over_irc(path, facts, never):
        yield figure


async def found_figures(
    path: Path, facts: Sequence[SetItem], never: Sequence[SetItem], find: Find
) -> AsyncIterator[Figure]:
    """Yield recall and latency of `find` in the log at `path`.

    `facts` are in the log; for the questions of `never`, finding nothing is right.
    """
    scope = Scope.from_places(PLACE)
    times: list[float] = []

    async def timed(log: ChatLog, question: str) -> Sequence[Event]:
        began = time.perf_counter()
        found = await find(log, scope, question)
        times.append((time.perf_counter() - began) * 1000)
        return found

    async with Database.open(path) as database:
        log = ChatLog(database)
        for kind in ("question", "paraphrase"):
            ranks = []
            for fact in facts:
                found = await timed(log, getattr(fact, kind))
                texts = [event.text for event in found]
                ranks.append(texts.index(fact.text) if fact.text in texts else _SHOWN)
            goals = {1: 0.75, 3: 0.9} if kind == "question" else {}
            for first in (1, 3, _SHOWN):
                right = sum(rank < first for rank in ranks)
                least = goals[first] * len(facts) if first in goals else None
                name = f"history, {kind}: among {first}, of {len(facts)}"
                yield Figure(name, right, "", least=least)
        empty = sum([not await timed(log, item.question) for item in never])
        name = f"history, never said: nothing, of {len(never)}"
        yield Figure(name, empty, "", least=0.8 * len(never))
    yield Figure("history: to find, median", percentile(times, 0.5), "ms")
    yield Figure("history: to find, p95", percentile(times, 0.95), "ms", 150)


async def _over_irc(
    path: Path, facts: Sequence[SetItem], never: Sequence[SetItem]
) -> AsyncIterator[Figure]:
    """Yield the results of asking the bot the same questions in the channel of the log."""
    asked: list[AskedQuestion] = []
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(path, Path(name) / "irc.db")
        async with PeopleInRoom.opened(Path(name), PLACE.channel) as room:
            askers = cycle(NICKS)
            for kind, items in (("question", facts), ("paraphrase", facts), ("never", never)):
                for item in items:
                    text = item.paraphrase if kind == "paraphrase" else item.question
                    place = len(asked) + 1
                    question = ScheduledQuestion(place, kind, item, text, next(askers), 0)
                    answer = await room.ask(question.asker, text)
                    is_right = bool(
                        NOT_KNOWN.search(answer.text)
                        if kind == "never"
                        else is_line(answer.text, item.text)
                    )
                    found = leaks(answer.text, [*room.every_line, (item.nick, item.text)])
                    asked.append(AskedQuestion(question, answer, answer.text, is_right, found))
    for kind, share in (("question", 0.75), ("paraphrase", None), ("never", 0.8)):
        members = [each for each in asked if each.question.group == kind]
        right = sum(each.is_right for each in members)
        least = share * len(members) if share is not None else None
        yield Figure(f"history over IRC, {kind}: right of {len(members)}", right, "", least=least)
    first = [each.answer.first for each in asked if each.answer.first is not None]
    yield Figure("history over IRC: unanswered", len(asked) - len(first), "", 0)
    if first:
        yield Figure("history over IRC: first line, median", percentile(first, 0.5), "s")
    for report in written(asked):
        print(f"  answers to read: {report}")


async def log_with_facts(size: int) -> Path:
    """Return the path of a log of `size` lines with the facts; build it if it does not exist.

    Raises NoCorpus.
    """
    said = (FOLDER / f"{_SET}.json").read_bytes()
    digest = hashlib.sha256(said).hexdigest()[:8]
    default = Path(tempfile.gettempdir()) / "terrarium-bench-logs"
    path = Path(os.environ.get("BENCH_LOGS") or default) / f"history-{size}-{digest}.db"
    if not path.exists():
        lines()
        os.makedirs(path.parent, exist_ok=True)
        print(f"  making a log of {size:,} lines: {path}", flush=True)
        # Renamed when complete, so that an interrupted build is not used.
        part = path.with_suffix(f".{os.getpid()}.part")
        made = events(size, questions(_SET, "facts"), datetime.now(UTC))
        async with Database.open(part) as database:
            while batch := list(islice(made, _BATCH)):
                await ChatLog(database).add(batch)
        part.rename(path)
    return path


def events(size: int, facts: Sequence[SetItem], end: datetime) -> Iterator[Event]:
    """Yield `size` real lines, spread evenly over SPAN before `end`, with the facts among them.

    The facts are planted by turns about a month, a year and five years before `end`. Raises
    NoCorpus.
    """
    chance = random.Random(3)
    due = sorted(
        (end - AGO[place % len(AGO)] + _AROUND * chance.uniform(-1, 1), place)
        for place in range(len(facts))
    )
    spoken = cycle([line for line in lines() if line[0] in SPOKEN and line[2].strip()])
    for number, (kind, nick, text) in enumerate(islice(spoken, size)):
        moment = end - SPAN * (1 - number / size)
        while due and due[0][0] <= moment:
            planted, place = due.pop(0)
            yield _event(EventType.PRIVMSG, facts[place].nick, facts[place].text, planted)
        yield _event(kind, nick, text, moment)


def _event(kind: EventType, nick: str, text: str, moment: datetime) -> Event:
    return Event(
        network=PLACE.network,
        channel=PLACE.channel,
        type=kind,
        time=moment,
        nick=nick,
        user="u",
        host=f"{nick}.example.org",
        text=text,
    )

"""Passage retrieval: facts said years ago in a million lines, and minutes ago in a small channel.

The million lines are messages of #ubuntu (benchmarks/ubuntu.py), repeated and spread over twelve
years. The facts of `questions/history_*.json` are planted among them at random times. Questions ask
for each fact literally and paraphrased, and for things that nobody said. In the second part each
fact has its own channel with 40 or 300 lines of chatter. Both logs are also asked questions of
general knowledge, which no line answers. The logs are kept in the folder `BENCH_LOGS`, by default
`terrarium-bench` in the folder for temporary files.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import cycle, islice
from pathlib import Path

from benchmarks import ubuntu
from benchmarks.figure import Figure, percentile
from storage.chat_log.event import PUBLIC, SPOKEN, Event, EventType, Place, Scope
from storage.chat_log.query import Query
from storage.db.database import Database
from storage.log import ChatLog
from storage.passages.passages import Passages

QUESTIONS = Path(__file__).parent / "questions"
FILES = ("history_seen.json", "history_unseen.json")
LINES = 1_000_000
YEARS = 12
CHATTER = (40, 300)
NETWORK = "libera"
CHANNEL = Place(NETWORK, "#ubuntu")
_BATCH = 5_000
_MOST = 10  # passages requested
_VERSION = 3  # of the generated logs; increase it when their generation changes

GENERAL = (
    "what is the capital of France?",
    "who wrote Romeo and Juliet?",
    "what is the opposite of hot?",
    "how many legs does a spider have?",
    "what colour is the sky?",
    "what is two plus two?",
    "what is the largest planet?",
    "who painted the Mona Lisa?",
    "what is the chemical symbol for gold?",
    "how many days are in a week?",
    "what language do they speak in Brazil?",
    "what do bees make?",
    "what is the freezing point of water?",
    "who was the first president of the United States?",
    "what is the boiling point of water?",
    "how many continents are there?",
    "what is the tallest mountain in the world?",
    "which animal barks?",
    "what is the currency of Japan?",
    "what is the capital of Italy?",
    "how many hours are in a day?",
    "what is photosynthesis?",
    "what comes after Tuesday?",
    "who discovered penicillin?",
    "what is H2O?",
    "tell me a joke about cats",
    "how do I boil an egg?",
    "what is the square root of 81?",
    "which ocean is the biggest?",
    "can you write a haiku about rain?",
)


@dataclass(frozen=True, slots=True)
class Fact:
    """A planted line of `nick`, and a literal and a paraphrased question that it answers."""

    id: str
    nick: str
    text: str
    question: str
    paraphrase: str


@dataclass(frozen=True, slots=True)
class QuestionFile:
    """The facts of a file, and `never`, questions that no line answers."""

    name: str
    facts: Sequence[Fact]
    never: Sequence[str]

    @classmethod
    def of(cls, path: Path) -> QuestionFile:
        """Read a JSON file; the part after the last underscore of its name is the `name`."""
        saved = json.loads(path.read_text(encoding="utf-8"))
        facts = [
            Fact(each["id"], each["nick"], each["text"], each["question"], each["paraphrase"])
            for each in saved["facts"]
        ]
        name = path.stem.rpartition("_")[2]
        return cls(name, facts, [each["question"] for each in saved["never"]])


@dataclass(frozen=True, slots=True)
class Took:
    """The milliseconds until an answer, and the milliseconds of CPU time."""

    whole: float
    work: float


def question_files() -> list[QuestionFile]:
    """Read the existing question files, the seen one first."""
    return [QuestionFile.of(QUESTIONS / name) for name in FILES if (QUESTIONS / name).exists()]


async def figures() -> AsyncIterator[Figure]:
    """Yield recall of the right lines, correctly empty answers, and latency."""
    try:
        files = question_files()
        async with Database.open(await history(files)) as database:
            async for figure in _history(ChatLog(database), files):
                yield figure
        async with Database.open(await chatter(files)) as database:
            async for figure in _chatter(ChatLog(database), files):
                yield figure
    except ubuntu.NoCorpus as reason:
        print(f"  skipped: {reason}")


async def _history(log: ChatLog, files: Sequence[QuestionFile]) -> AsyncIterator[Figure]:
    """Yield the figures of the log with a million lines."""
    times: list[Took] = []
    await _asked(log, "when is it?", PUBLIC)  # warm-up: loads the data that is read only once
    for file in files:
        for kind, asked, goals in (
            ("literal", [fact.question for fact in file.facts], (75, 90)),
            ("paraphrased", [fact.paraphrase for fact in file.facts], (None, None)),
        ):
            answers = []
            for question in asked:
                answer, took = await _asked(log, question, PUBLIC)
                answers.append(answer)
                times.append(took)
            places = [
                _place(fact, answer) for fact, answer in zip(file.facts, answers, strict=True)
            ]
            label = f"{file.name}, million, {kind}"
            for most, goal in ((1, goals[0]), (3, goals[1]), (10, None)):
                found = [place is not None and place < most for place in places]
                yield Figure(f"{label}: among {most}", _percent(found), "%", least=goal)
            quoted = [
                place == 0 and bool(answer.answers)
                for place, answer in zip(places, answers, strict=True)
            ]
            yield Figure(f"{label}: quoted", _percent(quoted), "%")
            partial = [answer.searched_back_to is not None for answer in answers]
            yield Figure(f"{label}: searched in part", _percent(partial), "%")
        silent = []
        for question in file.never:
            answer, took = await _asked(log, question, PUBLIC)
            silent.append(not answer.answers)
            times.append(took)
        yield Figure(f"{file.name}, million: never said, known", _percent(silent), "%", least=80)
    given = [bool((await _asked(log, question, PUBLIC))[0].answers) for question in GENERAL]
    yield Figure("million: general questions given lines", sum(given), "", 1)
    for figure in _milliseconds("million", times):
        yield figure


async def _chatter(log: ChatLog, files: Sequence[QuestionFile]) -> AsyncIterator[Figure]:
    """Yield the figures of the channels with few lines."""
    for file in files:
        for size in CHATTER:
            label = f"{file.name}, {size} lines"
            times: list[Took] = []
            literal: list[bool] = []
            other: list[bool] = []
            who: list[bool] = []
            silent: list[bool] = []
            for fact in file.facts:
                scope = Scope.from_places(place_of(fact, size))
                for question, into in ((fact.question, literal), (fact.paraphrase, other)):
                    answer, took = await _asked(log, question, scope)
                    times.append(took)
                    into.append(_place(fact, answer) == 0 and bool(answer.answers))
                who.append(await _knows_who(log, fact, scope))
            for question, fact in zip(file.never, file.facts, strict=False):
                answer, _ = await _asked(log, question, Scope.from_places(place_of(fact, size)))
                silent.append(not answer.answers)
            yield Figure(f"{label}, literal: quoted first", _percent(literal), "%", least=95)
            yield Figure(f"{label}, paraphrased: quoted first", _percent(other), "%", least=70)
            yield Figure(f"{label}, who said what", _percent(who), "%", least=95)
            yield Figure(f"{label}, never said, known", _percent(silent), "%", least=80)
            for figure in _milliseconds(label, times):
                yield figure
    facts = [fact for file in files for fact in file.facts]
    known = _known_to_all()
    for size in CHATTER:
        given = 0
        for question, fact in zip(GENERAL, files[0].facts, strict=False):
            answer, _ = await _asked(log, question, Scope.from_places(place_of(fact, size)))
            given += bool(answer.answers)
        yield Figure(f"{size} lines: general questions given lines", given, "", 1)
        quoted = []
        for question, fact in zip(known, cycle(facts), strict=False):
            answer, _ = await _asked(log, question, Scope.from_places(place_of(fact, size)))
            quoted.append(bool(answer.answers))
        yield Figure(f"{size} lines: common knowledge given lines", _percent(quoted), "%")


def _known_to_all() -> Sequence[str]:
    """Return the questions of general knowledge of two question sets."""
    general = json.loads((QUESTIONS / "general.json").read_text(encoding="utf-8"))["items"]
    knowledge = json.loads((QUESTIONS / "knowledge.json").read_text(encoding="utf-8"))
    return [each["question"] for each in (*general, *knowledge) if not each.get("is_local")]


async def _knows_who(log: ChatLog, fact: Fact, scope: Scope) -> bool:
    """Return True if the fact is found both by its topic and by its topic and speaker."""
    topic = " ".join(fact.text.split()[-4:])
    for nick in (None, fact.nick):
        answer = await log.passages(topic, Query(scope=scope, nick=nick, limit=3))
        if fact.text not in [each.event.text for each in answer.items]:
            return False
    return True


async def _asked(log: ChatLog, question: str, scope: Scope) -> tuple[Passages, Took]:
    began, worked = time.perf_counter(), time.process_time()
    answer = await log.passages(question, Query(scope=scope, limit=_MOST))
    whole, work = time.perf_counter() - began, time.process_time() - worked
    return answer, Took(whole * 1000, work * 1000)


def _milliseconds(label: str, times: Sequence[Took]) -> Iterator[Figure]:
    """Yield percentiles of wall time and CPU time; the latter is meaningful on a busy machine."""
    whole, work = [took.whole for took in times], [took.work for took in times]
    yield Figure(f"{label}: a question, median", percentile(whole, 0.5), "ms")
    yield Figure(f"{label}: a question, p95", percentile(whole, 0.95), "ms", 150)
    yield Figure(f"{label}: work on a question, median", percentile(work, 0.5), "ms")
    yield Figure(f"{label}: work on a question, p95", percentile(work, 0.95), "ms", 150)


def _place(fact: Fact, answer: Passages) -> int | None:
    """Return the rank of a fact's line in an answer, from 0; None if it was not found."""
    texts = [each.event.text for each in answer.items]
    return texts.index(fact.text) if fact.text in texts else None


def _percent(hits: Sequence[bool]) -> float:
    return 100 * sum(hits) / len(hits)


async def history(files: Sequence[QuestionFile]) -> Path:
    """Return the path of a log of LINES lines with all facts at random times; build it if needed.

    Raises NoCorpus.
    """
    facts = [fact for file in files for fact in file.facts]
    return await _kept("history", facts, _history_events(facts))


async def chatter(files: Sequence[QuestionFile]) -> Path:
    """Return the path of a log with small channels of one fact each; build it if needed.

    Raises NoCorpus.
    """
    facts = [fact for file in files for fact in file.facts]
    return await _kept("chatter", facts, _chatter_events(facts))


def place_of(fact: Fact, size: int) -> Place:
    """Return the channel of `size` lines with the fact."""
    return Place(NETWORK, f"#{fact.id}-{size}")


def _history_events(facts: Sequence[Fact]) -> Iterator[Event]:
    said = [line for line in ubuntu.lines() if line[0] in SPOKEN]
    chance = random.Random(7)
    planted = dict(zip(chance.sample(range(LINES), len(facts)), facts, strict=True))
    pause = timedelta(days=365.25 * YEARS) / LINES
    for number in range(LINES):
        kind, nick, text = said[number % len(said)]
        yield _event(CHANNEL, number * pause, nick, text, kind)
        if number in planted:
            fact = planted[number]
            yield _event(CHANNEL, number * pause + pause / 2, fact.nick, fact.text)


def _chatter_events(facts: Sequence[Fact]) -> Iterator[Event]:
    said = [line for line in ubuntu.lines() if line[0] in SPOKEN]
    chance = random.Random(11)
    pause = timedelta(seconds=20)
    for size in CHATTER:
        for number, fact in enumerate(facts):
            place = place_of(fact, size)
            start, planted = chance.randrange(len(said) - size), chance.randrange(size)
            begin = timedelta(hours=number)
            for index, (kind, nick, text) in enumerate(said[start : start + size]):
                yield _event(place, begin + index * pause, nick, text, kind)
                if index == planted:
                    yield _event(place, begin + (index + 0.5) * pause, fact.nick, fact.text)


def _event(
    place: Place, after: timedelta, nick: str, text: str, kind: EventType = EventType.PRIVMSG
) -> Event:
    return Event(
        network=place.network,
        channel=place.channel,
        type=kind,
        time=ubuntu.BEGIN + after,
        nick=nick,
        user="u",
        host="host.example.org",
        text=text,
    )


async def _kept(name: str, facts: Sequence[Fact], events: Iterable[Event]) -> Path:
    """Return the path of a log with `events`; build it if there is none with the same facts."""
    key = hashlib.sha256(repr((_VERSION, LINES, facts)).encode()).hexdigest()[:12]
    kept = os.environ.get("BENCH_LOGS")
    folder = Path(kept) if kept else Path(tempfile.gettempdir()) / "terrarium-bench"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{key}.db"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as part:
            async with Database.open(Path(part) / "log.db") as database:
                made = iter(events)
                while batch := list(islice(made, _BATCH)):
                    await ChatLog(database).add(batch)
            (Path(part) / "log.db").rename(path)
    return path

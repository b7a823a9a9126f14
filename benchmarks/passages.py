"""Retrieval: facts said years ago in a million lines, and minutes ago in a small channel.

The million lines are messages of #ubuntu (benchmarks/ubuntu.py), repeated and spread over twelve
years. The facts of `questions/history_*.json` are planted among them at random times. Questions ask
for each fact literally and paraphrased, for things that nobody said, and for other things about the
subject of a fact (`near`). In the second part each fact has its own channel with 40 lines of
chatter, or with 300 and thirty other facts; and a crowded channel has all facts of a file, with
those of `questions/channel.json`, each after four lines of chatter. All logs are also asked
questions of general knowledge, which no line answers. The newest lines have vectors, as in a
running log, and the question's is known, as its reader embeds it. The logs are kept in the folder
`BENCH_LOGS`, by default `terrarium-bench` in the folder for temporary files.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain, cycle, islice
from pathlib import Path

from benchmarks import ubuntu
from benchmarks.dialogues import Dialogue, dialogues
from benchmarks.embedder import BenchEmbedder, kept_folder
from benchmarks.figure import Figure, percentile
from llm.log_questions import LogAnswers
from llm.retrieval import Found, Retrieval
from storage.chat_log.event import PUBLIC, SPOKEN, Event, EventType, Place, Scope
from storage.chat_log.event_table import Query
from storage.db.database import Database
from storage.log import ChatLog
from storage.passages.passages import find_mentions
from storage.search.vectors import MEAN, VectorIndex

QUESTIONS = Path(__file__).parent / "questions"
FILES = ("history_seen.json", "history_unseen.json")
LINES = 1_000_000
YEARS = 12
CHATTER = (40, 300)
OTHER_FACTS = 30  # in the larger channels, which nobody asks about there
BETWEEN_FACTS = 4  # lines of chatter between the facts of a crowded channel
NETWORK = "libera"
CHANNEL = Place(NETWORK, "#ubuntu")
CHATTER_LINES = 5_000  # lines of which the small channels have some
_BATCH = 5_000
_MOST = 10  # passages requested
_VERSION = 7  # of the generated logs; increase it when their generation changes

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
    """A planted line of `nick`, a literal `question` and `paraphrases` that it answers, and a
    question about its subject that it does not answer (`near`).

    If it replies to a line, `asked` is that line and `asker` who said it.
    """

    id: str
    nick: str
    text: str
    question: str
    paraphrases: Sequence[str]
    near: str = ""
    asker: str = ""
    asked: str = ""


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
        near = {each["fact"]: each["question"] for each in saved.get("near", ())}
        facts = [
            Fact(
                each["id"],
                each["nick"],
                each["text"],
                each["question"],
                [each["paraphrase"], *each.get("paraphrases", ())],
                near.get(each["id"], ""),
                each.get("asker", ""),
                each.get("asked", ""),
            )
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


def crowd_of(file: QuestionFile) -> QuestionFile:
    """Return the file with the facts of `questions/channel.json` of the same half."""
    items = json.loads((QUESTIONS / "channel.json").read_text(encoding="utf-8"))["items"]
    said = [
        Fact(each["id"], each["nick"], each["text"], each["question"], [each["paraphrase"]])
        for each in items
        if each["half"] == file.name
    ]
    return replace(file, facts=[*file.facts, *said])


def crowded(file: QuestionFile) -> Place:
    """Return the channel with all facts of a file and its crowd."""
    return Place(NETWORK, f"#crowd-{file.name}")


class Asker:
    """Asks questions of a log; their vectors are known beforehand."""

    def __init__(self, log: ChatLog, embedder: BenchEmbedder) -> None:
        self._embedder = embedder
        self._retrieval = Retrieval(log, embedder)

    async def ask(self, question: str, scope: Scope) -> tuple[Found, Took]:
        """Return the lines found, and the time."""
        vector = (await self._embedder.cached([question], query=True))[question]
        began, worked = time.perf_counter(), time.process_time()
        found = await self._retrieval.find(question, Query(scope=scope, limit=_MOST), vector=vector)
        whole, work = time.perf_counter() - began, time.process_time() - worked
        return found, Took(whole * 1000, work * 1000)


async def figures() -> AsyncIterator[Figure]:
    """Yield recall of the right lines, correctly empty answers, and latency."""
    try:
        files = question_files()
        async with (
            BenchEmbedder.open() as embedder,
            Database.open(await history(files, embedder)) as million,
            Database.open(await chatter(files, embedder)) as channels,
            Database.open(await crowds(files, embedder)) as crowd,
        ):
            for half in ("seen", "unseen"):
                async for figure in _talk(half, embedder):
                    yield figure
            async for figure in _history(Asker(ChatLog(million), embedder), files):
                yield figure
            async for figure in _chatter(ChatLog(channels), embedder, files):
                yield figure
            async for figure in _crowded(Asker(ChatLog(crowd), embedder), files):
                yield figure
    except ubuntu.NoCorpus as reason:
        print(f"  skipped: {reason}")


async def _history(asker: Asker, files: Sequence[QuestionFile]) -> AsyncIterator[Figure]:
    """Yield the figures of the log with a million lines."""
    times: list[Took] = []
    await asker.ask("when is it?", PUBLIC)  # warm-up: loads the data that is read only once
    for file in files:
        for kind, asked, goals in (
            ("literal", [(fact.question, fact) for fact in file.facts], (75, 90)),
            ("paraphrased", [(p, f) for f in file.facts for p in f.paraphrases], (None, None)),
        ):
            places, sure = [], []
            for question, fact in asked:
                found, took = await asker.ask(question, PUBLIC)
                places.append(_place(fact, found))
                sure.append(places[-1] == 0 and found.is_sure)
                times.append(took)
            label = f"{file.name}, million, {kind}"
            for most, goal in ((1, goals[0]), (3, goals[1]), (10, None)):
                right = [place is not None and place < most for place in places]
                yield Figure(f"{label}: among {most}", _percent(right), "%", least=goal)
            yield Figure(f"{label}: first and sure", _percent(sure), "%")
        for kind, never in (("never said", file.never), ("near", _near(file))):
            if never:
                wrong = [(await asker.ask(question, PUBLIC))[0].is_sure for question in never]
                label = f"{file.name}, million, {kind}: sure"
                yield Figure(label, _percent(wrong), "%", goal=10)
    wrong = [(await asker.ask(question, PUBLIC))[0].is_sure for question in known_to_all("unseen")]
    yield Figure("million, common knowledge: sure", _percent(wrong), "%", goal=1)
    for figure in _milliseconds("million", times):
        yield figure


async def _chatter(
    log: ChatLog, embedder: BenchEmbedder, files: Sequence[QuestionFile]
) -> AsyncIterator[Figure]:
    """Yield the figures of the channels with few lines."""
    asker = Asker(log, embedder)
    for file in files:
        for size in CHATTER:
            label = f"{file.name}, {size} lines"
            times: list[Took] = []
            for kind, asked, goal in (
                ("literal", [(fact.question, fact) for fact in file.facts], 95),
                ("paraphrased", [(p, f) for f in file.facts for p in f.paraphrases], 75),
            ):
                first, sure, shown = [], [], []
                for question, fact in asked:
                    found, took = await asker.ask(question, Scope.from_places(place_of(fact, size)))
                    times.append(took)
                    first.append(_place(fact, found) == 0)
                    sure.append(first[-1] and found.is_sure)
                    shown.append(first[-1] and bool(found.shown))
                yield Figure(f"{label}, {kind}: first", _percent(first), "%", least=goal)
                yield Figure(f"{label}, {kind}: first and shown", _percent(shown), "%")
                yield Figure(f"{label}, {kind}: first and sure", _percent(sure), "%")
            never = list(zip(file.never, file.facts, strict=False))
            near = [(fact.near, fact) for fact in file.facts if fact.near]
            for kind, unsaid in (("never said", never), ("near", near)):
                if unsaid:
                    wrong, shown = [], []
                    for question, fact in unsaid:
                        place = place_of(fact, size)
                        found, _ = await asker.ask(question, Scope.from_places(place))
                        wrong.append(found.is_sure)
                        shown.append(bool(found.shown))
                    yield Figure(f"{label}, {kind}: sure", _percent(wrong), "%", goal=10)
                    yield Figure(f"{label}, {kind}: shown", _percent(shown), "%")
            who = [await _knows_who(log, fact, size) for fact in file.facts]
            yield Figure(f"{label}, who said what", _percent(who), "%", least=95)
            for figure in _milliseconds(label, times):
                yield figure
    facts = [fact for file in files for fact in file.facts]
    for size in CHATTER:
        wrong = []
        for question, fact in zip(known_to_all("unseen"), cycle(facts), strict=False):
            found, _ = await asker.ask(question, Scope.from_places(place_of(fact, size)))
            wrong.append(found.is_sure)
        yield Figure(f"{size} lines, common knowledge: sure", _percent(wrong), "%", goal=1)


async def _crowded(asker: Asker, files: Sequence[QuestionFile]) -> AsyncIterator[Figure]:
    """Yield the figures of the channels with all facts."""
    for file in map(crowd_of, files):
        scope = Scope.from_places(crowded(file))
        for kind, asked in (
            ("literal", [(fact.question, fact) for fact in file.facts]),
            ("paraphrased", [(p, f) for f in file.facts for p in f.paraphrases]),
        ):
            first, shown = [], []
            for question, fact in asked:
                found, _ = await asker.ask(question, scope)
                first.append(_place(fact, found) == 0)
                shown.append(first[-1] and bool(found.shown))
            yield Figure(f"{file.name}, crowded, {kind}: first", _percent(first), "%")
            yield Figure(f"{file.name}, crowded, {kind}: first and shown", _percent(shown), "%")
        for kind, unsaid in (
            ("never said", file.never),
            ("near", _near(file)),
            ("common knowledge", known_to_all(file.name)),
        ):
            wrong = [(await asker.ask(question, scope))[0] for question in unsaid]
            if wrong:
                label = f"{file.name}, crowded, {kind}"
                yield Figure(f"{label}: sure", _percent([each.is_sure for each in wrong]), "%")
                shown = [bool(each.shown) for each in wrong]
                yield Figure(f"{label}: shown", _percent(shown), "%")


async def _talk(half: str, embedder: BenchEmbedder) -> AsyncIterator[Figure]:
    """Yield the figures of the talk of small channels by kind of question."""
    talks = list(dialogues(half))
    kinds: dict[str, list[tuple[bool, bool, bool]]] = {}
    async with Database.open(await talk(talks, embedder)) as database:
        retrieval = Retrieval(ChatLog(database), embedder)
        for each in talks:
            within = Query(scope=Scope.from_places(each.place))
            for question in each.questions:
                vector = (await embedder.cached([question.text], query=True))[question.text]
                answer = await LogAnswers(retrieval, within).answer(question.text, None, vector)
                shown = answer.shown if answer else ()
                is_right = any((event.nick, event.text) in question.answers for event in shown)
                row = (is_right, bool(shown), bool(answer and answer.is_sure))
                kinds.setdefault(question.kind, []).append(row)
    for kind, rows in kinds.items():
        label = f"{half}, talk, {kind}"
        if kind not in ("near", "never"):
            yield Figure(f"{label}: right shown", _percent([right for right, _, _ in rows]), "%")
            only = [shown and not right for right, shown, _ in rows]
            yield Figure(f"{label}: only others shown", _percent(only), "%")
            yield Figure(f"{label}: right and sure", _percent([r and s for r, _, s in rows]), "%")
            yield Figure(f"{label}: another sure", _percent([s and not r for r, _, s in rows]), "%")
        else:
            yield Figure(f"{label}: shown", _percent([shown for _, shown, _ in rows]), "%")
            yield Figure(f"{label}: sure", _percent([sure for _, _, sure in rows]), "%")


def _near(file: QuestionFile) -> list[str]:
    return [fact.near for fact in file.facts if fact.near]


def known_to_all(half: str) -> Sequence[str]:
    """Return the questions of general knowledge of a half of two question sets."""
    general = json.loads((QUESTIONS / "general.json").read_text(encoding="utf-8"))["items"]
    knowledge = json.loads((QUESTIONS / "knowledge.json").read_text(encoding="utf-8"))
    items = [each for each in (*general, *knowledge) if not each.get("is_local")]
    return [each["question"] for each in items if each["half"] == half]


async def _knows_who(log: ChatLog, fact: Fact, size: int) -> bool:
    """Return True if the fact is found both by its topic and by its topic and speaker."""
    topic = " ".join(fact.text.split()[-4:])
    scope = Scope.from_places(place_of(fact, size))
    for nick in (None, fact.nick):
        answer = await log.read(find_mentions, topic, Query(scope=scope, nick=nick, limit=3))
        if fact.text not in [each.event.text for each in answer.found.items]:
            return False
    return True


def _milliseconds(label: str, times: Sequence[Took]) -> Iterator[Figure]:
    """Yield percentiles of wall time and CPU time; the latter is meaningful on a busy machine."""
    whole, work = [took.whole for took in times], [took.work for took in times]
    yield Figure(f"{label}: a question, median", percentile(whole, 0.5), "ms")
    yield Figure(f"{label}: a question, p95", percentile(whole, 0.95), "ms", 150)
    yield Figure(f"{label}: work on a question, median", percentile(work, 0.5), "ms")
    yield Figure(f"{label}: work on a question, p95", percentile(work, 0.95), "ms", 150)


def _place(fact: Fact, found: Found) -> int | None:
    """Return the rank of a fact's line among those found, from 0; None if it is not there."""
    texts = [each.event.text for each in found.passages]
    return texts.index(fact.text) if fact.text in texts else None


def _percent(hits: Sequence[bool]) -> float:
    return 100 * sum(hits) / len(hits)


async def history(files: Sequence[QuestionFile], embedder: BenchEmbedder) -> Path:
    """Return the path of a log of LINES lines with all facts at random times, the newest with
    vectors; build it if needed. Raises NoCorpus."""
    facts = [fact for file in files for fact in file.facts]
    return await _kept("history", facts, _history_events(facts), embedder)


async def chatter(files: Sequence[QuestionFile], embedder: BenchEmbedder) -> Path:
    """Return the path of a log with small channels of one fact each, all with vectors; build it if
    needed. Raises NoCorpus."""
    facts = [fact for file in files for fact in file.facts]
    return await _kept("chatter", facts, _chatter_events(facts), embedder)


async def crowds(files: Sequence[QuestionFile], embedder: BenchEmbedder) -> Path:
    """Return the path of a log with a crowded channel for each file, all with vectors; build it if
    needed. Raises NoCorpus."""
    parts = [crowd_of(file) for file in files]
    facts = [fact for file in parts for fact in file.facts]
    events = chain.from_iterable(map(_crowd_events, parts))
    return await _kept("crowds", facts, events, embedder)


async def talk(found: Sequence[Dialogue], embedder: BenchEmbedder) -> Path:
    """Return the path of a log with dialogues, all with vectors; build it if needed."""
    events = [event for each in found for event in each.events]
    return await _kept("talk", [each.questions for each in found], events, embedder)


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
            if fact.asked:
                yield _event(CHANNEL, number * pause + pause / 4, fact.asker, fact.asked)
            yield _event(CHANNEL, number * pause + pause / 2, fact.nick, fact.text)


def _chatter_events(facts: Sequence[Fact]) -> Iterator[Event]:
    said = [line for line in ubuntu.lines() if line[0] in SPOKEN][:CHATTER_LINES]
    chance = random.Random(11)
    pause = timedelta(seconds=20)
    for size in CHATTER:
        for number, fact in enumerate(facts):
            place = place_of(fact, size)
            start, planted = chance.randrange(len(said) - size), chance.randrange(size)
            begin = timedelta(hours=number)
            others = {}
            if size == max(CHATTER):
                told = chance.sample([each for each in facts if each is not fact], OTHER_FACTS)
                others = dict(zip(chance.sample(range(size), OTHER_FACTS), told, strict=True))
            for index, (kind, nick, text) in enumerate(said[start : start + size]):
                yield _event(place, begin + index * pause, nick, text, kind)
                if index == planted:
                    if fact.asked:
                        yield _event(place, begin + (index + 0.3) * pause, fact.asker, fact.asked)
                    yield _event(place, begin + (index + 0.5) * pause, fact.nick, fact.text)
                if index in others:
                    other = others[index]
                    yield _event(place, begin + (index + 0.7) * pause, other.nick, other.text)


def _crowd_events(file: QuestionFile) -> Iterator[Event]:
    said = (line for line in ubuntu.lines() if line[0] in SPOKEN)
    pause, place = timedelta(seconds=20), crowded(file)
    facts = random.Random(13).sample(file.facts, len(file.facts))
    for number, fact in enumerate(facts):
        begin = number * (BETWEEN_FACTS + 2) * pause
        for index, (kind, nick, text) in enumerate(islice(said, BETWEEN_FACTS)):
            yield _event(place, begin + index * pause, nick, text, kind)
        if fact.asked:
            yield _event(place, begin + BETWEEN_FACTS * pause, fact.asker, fact.asked)
        yield _event(place, begin + (BETWEEN_FACTS + 1) * pause, fact.nick, fact.text)


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


async def _kept(
    name: str, facts: Sequence[object], events: Iterable[Event], embedder: BenchEmbedder
) -> Path:
    """Return the path of a log with `events`; build it if there is none with the same facts."""
    made_from = repr((_VERSION, LINES, facts, MEAN.read_text(encoding="utf-8")))
    path = kept_folder() / f"{name}-{hashlib.sha256(made_from.encode()).hexdigest()[:12]}.db"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=kept_folder()) as part:
            async with Database.open(Path(part) / "log.db") as database:
                made = iter(events)
                while batch := list(islice(made, _BATCH)):
                    await ChatLog(database).add(batch)
                await _embed_newest(database, embedder)
            (Path(part) / "log.db").rename(path)
    return path


async def _embed_newest(database: Database, embedder: BenchEmbedder) -> None:
    vectors = VectorIndex(database)
    await vectors.open()
    lines = await vectors.missing(0, LINES)
    texts = [text for line in lines for text in (line.text, line.in_talk) if text]
    await vectors.add(lines, await embedder.cached(texts))

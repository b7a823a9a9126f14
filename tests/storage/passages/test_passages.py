"""The search for passages over real files: the line that answers, nobody's command, and silence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.retrieval import SURE
from storage.chat_log.event import PUBLIC, Event, EventType, Identity, Place, Scope
from storage.chat_log.opt_outs import OptOuts
from storage.connection import Connection
from storage.db.database import Database, from_micros
from storage.log import ChatLog, Query
from storage.passages.candidates import IndexPlan, PassageIndex
from storage.passages.passages import (
    LineFilter,
    Mentions,
    Passages,
    find_mentions,
    find_passages,
)
from storage.passages.words import Expected, question_words
from storage.search.planner import LineConditions
from storage.search.query_parser import ParsedQuery
from storage.text_index.model import Phrase
from tests.kit.stores import Stores
from tests.kit.ubuntu import spoken

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
POND, LAKE = Place("irc", "#pond"), Place("irc", "#lake")
PUMP = "the greenhouse pump starts at six"
QUESTION = "when does the greenhouse pump start?"


def said(
    text: str, *, minute: float = 0, nick: str = "ada", place: Place = POND, own: bool = False
) -> Event:
    return Event(
        network=place.network,
        channel=place.channel,
        type=EventType.PRIVMSG,
        time=NOON + timedelta(minutes=minute),
        nick=nick,
        text=text,
        own=own,
    )


@pytest.fixture
async def database(stores: Stores) -> AsyncIterator[Database]:
    async with Database.open(stores("irc")) as database:
        yield database


@pytest.fixture
async def log(database: Database) -> ChatLog:
    """A log with chatter of #ubuntu on #pond."""
    log = ChatLog(database)
    lines = [line.decode("utf-8", "replace") for line in spoken(300)]
    await log.add([said(text, minute=n, nick=f"user{n % 20}") for n, text in enumerate(lines)])
    return log


async def asked(log: ChatLog, question: str, scope: Scope = PUBLIC) -> Passages:
    within = Query(scope=scope, limit=10)
    return await log.read(find_passages, question, within, LineFilter(nicks=("Terra",)))


def texts(passages: Passages) -> list[str]:
    return [passage.event.text for passage in passages.items if passage.score >= SURE]


@pytest.mark.parametrize(
    "question",
    [
        QUESTION,
        "at what time do the greenhouse pumps start?",
        "When will the pump in the greenhouse be starting?",
        "when does the greenhuose pump start?",
    ],
)
async def test_a_line_is_found_by_its_words_in_any_form(log: ChatLog, question: str) -> None:
    await log.add([said(PUMP, minute=100.5)])
    assert texts(await asked(log, question))[:1] == [PUMP]


@pytest.mark.parametrize(
    "question",
    ["where is the badminton net?", "what is the capital of France?", "who are you?", "", "???"],
)
async def test_nothing_is_said_where_nobody_said_it(log: ChatLog, question: str) -> None:
    assert texts(await asked(log, question)) == []


async def test_a_line_that_shares_only_the_topic_is_no_answer(log: ChatLog) -> None:
    await log.add([said("because windows locks files and linux doesn't", minute=400)])
    assert texts(await asked(log, "who made linux?")) == []


def test_a_contraction_without_its_apostrophe_is_no_word_of_the_topic() -> None:
    with_them = question_words("where's the thing that you've lost, when I'm off and don't look?")
    without = question_words("wheres the thing that youve lost, when im off and dont look?")
    assert without == with_them
    assert [word.root for word in without.words] == ["lose", "look"]


def test_only_a_question_that_begins_with_it_asks_when() -> None:
    assert question_words("do you know when the pump starts?").expected is Expected.TIME
    question = question_words("how do I get online when the pump starts?")
    assert question.expected is Expected.ANYTHING


async def test_commands_own_lines_and_what_is_said_to_the_bot_are_no_answers(log: ChatLog) -> None:
    await log.add(
        [
            said(f".terrarium {PUMP}", minute=400),
            said(f"Terra: {PUMP}", minute=401),
            said(f"{PUMP}, I think", minute=402, nick="Terra", own=True),
        ]
    )
    assert texts(await asked(log, QUESTION)) == []


async def test_a_question_is_answered_by_the_reply_to_who_asked_it(log: ChatLog) -> None:
    await log.add(
        [
            said(QUESTION, minute=400, nick="bob"),
            said("nice weather", minute=401, nick="eve"),
            said("bob: at six, as always", minute=402, nick="lena"),
        ]
    )
    found = await asked(log, QUESTION)
    assert texts(found) == ["bob: at six, as always"]


async def test_a_line_that_tells_before_it_asks_is_an_answer(log: ChatLog) -> None:
    sale = "Jumble sale: Saturday, 10 to 1, in the chapel. Who helps?"
    await log.add([said("jumble sale?", minute=400, nick="eve"), said(sale, minute=420)])
    found = await asked(log, "when is the jumble sale?")
    assert found.items[0].event.text == sale


@pytest.mark.parametrize("more", ["I need to know", "does anyone know?"])
async def test_a_question_without_its_mark_is_no_answer(log: ChatLog, more: str) -> None:
    sale = "the jumble sale is on saturday"
    again = said(f"when is the jumble sale. {more}", minute=460, nick="eve")
    await log.add([said(sale, minute=400), again])
    assert texts(await asked(log, "when is the jumble sale?")) == [sale]


async def test_the_line_that_asks_is_not_found(log: ChatLog) -> None:
    [event_id] = await log.add([said(f"I say {PUMP}", minute=400)])
    within = Query(scope=PUBLIC, before_id=event_id)
    assert texts(await log.read(find_passages, QUESTION, within)) == []


async def test_of_equal_lines_the_newest_comes_first_or_the_oldest(log: ChatLog) -> None:
    lines = [f"the greenhouse pump starts at {hour}" for hour in ("six", "seven", "eight")]
    await log.add([said(text, minute=400 + 300 * n) for n, text in enumerate(lines)])
    within = Query(scope=PUBLIC, limit=3)
    found = await log.read(find_passages, QUESTION, within)
    assert [each.event.text for each in found.items] == lines[::-1]
    found = await log.read(find_passages, QUESTION, within, LineFilter(oldest=True))
    assert [each.event.text for each in found.items] == lines


async def test_nobody_finds_what_is_out_of_scope(log: ChatLog) -> None:
    await log.add([said(PUMP, minute=400, place=LAKE)])
    assert texts(await asked(log, QUESTION, Scope.from_places(POND))) == []
    assert texts(await asked(log, QUESTION, Scope.from_places(LAKE))) == [PUMP]
    assert texts(await asked(log, QUESTION, Scope.from_places())) == []


async def test_the_model_reads_nothing_of_who_has_opted_out(
    database: Database, log: ChatLog
) -> None:
    await log.add(
        [
            said(PUMP, minute=400),
            said("no, the greenhouse pump starts at seven", minute=401, nick="bob"),
        ]
    )
    await OptOuts(database).add("irc", Identity("bob"))
    found = await log.read(find_passages, QUESTION, Query(scope=PUBLIC, limit=10))
    assert texts(found) == [PUMP]


async def test_a_line_of_years_ago_is_found_by_its_speaker(log: ChatLog) -> None:
    old = said("our cat is called Bergamot", nick="ines", minute=-5_000_000)
    await log.add([old, *(said("my cat sleeps", minute=n + 0.5) for n in range(300))])
    found = await asked(log, "what is the name of ines's cat?")
    assert old.text in [passage.event.text for passage in found.items]


@given(text=st.text(max_size=200))
def test_no_question_is_an_error(text: str) -> None:
    assert len(question_words(text).words) <= 12


@pytest.mark.parametrize(
    ("line", "question"),
    [
        ("ｗｉｆｉ ｐａｓｓｗｏｒｄ is swordfish", "what is the ｗｉｆｉ ｐａｓｓｗｏｒｄ?"),
        ("the ﬁrst ﬂoor is wet", "where is the ﬁrst ﬂoor?"),
        ("한국 is in the far east", "where is 한국?"),
        ("ガレージ is behind the house", "where is ガレージ?"),
        ("the cafe of Zoë opens at nine", "when does the café of zoe open?"),
    ],
)
async def test_words_of_any_script_are_looked_up_as_the_index_has_them(
    log: ChatLog, line: str, question: str
) -> None:
    await log.add([said(line, minute=-60)])  # the newest lines are read without the index
    assert (await asked(log, question)).items[0].event.text == line


@pytest.mark.parametrize("oldest", [False, True])
async def test_a_search_that_is_interrupted_at_once_tells_no_time_in_the_future(
    log: ChatLog, database: Database, oldest: bool
) -> None:
    await log.add([replace(said("the end"), time=datetime.now(UTC))])

    def searched(db: Connection) -> int | None:
        conditions = LineConditions(db, Query(scope=PUBLIC), ParsedQuery())
        plan = IndexPlan(((Phrase("the"),),), 1.0)
        index = PassageIndex(db, conditions, oldest=oldest)
        _, bound = index.candidates([plan] * 1_000_000)
        return bound

    bound = await database.read(searched)
    assert bound is not None
    if oldest:
        assert from_micros(bound * 1_000) <= NOON
    else:
        assert from_micros(bound * 1_000) <= datetime.now(UTC)


async def mentions(log: ChatLog, text: str, line_filter: LineFilter, **within: Any) -> Mentions:
    return await log.read(find_mentions, text, Query(scope=PUBLIC, limit=10, **within), line_filter)


PONDS = LineFilter(nicks=("Terra",))


async def test_lines_with_any_of_the_words_are_found_those_with_all_first_and_counted(
    log: ChatLog,
) -> None:
    await log.add(
        [
            said("the greenhouse is warm", minute=101),
            said("the greenhouses need a pump", minute=102),
            said("he pumps water out of the greenhouse", minute=103),
            said("a pumpkin grew in the greenhouse", minute=104),
        ]
    )
    found = await mentions(log, "greenhouse pump", PONDS)
    assert (found.words, found.count, found.alone) == (("greenhouse", "pump"), 2, ())
    lines = [(each.event.text, each.has_all) for each in found.found.items]
    assert lines[:2] == [
        ("he pumps water out of the greenhouse", True),
        ("the greenhouses need a pump", True),
    ]
    assert {text for text, has_all in lines if not has_all} == {
        "the greenhouse is warm",
        "a pumpkin grew in the greenhouse",
    }


async def test_if_no_line_has_all_words_each_is_counted_within_what_may_be_read(
    log: ChatLog, database: Database
) -> None:
    bob = Identity("bob", "b", "bob.example.org")
    await log.add(
        [
            *(said(f"greenhouse {n}", minute=101 + n / 100) for n in range(12)),
            said("the axolotl is in the greenhouse", minute=102, place=LAKE),
            replace(said("an axolotl", minute=103, nick="bob"), user=bob.user, host=bob.host),
            said("Terra: greenhouse?", minute=104),
            said("one axolotl", minute=105, own=True),
        ]
    )
    await OptOuts(database).add("irc", bob)
    here = Scope.from_places(POND)
    within = Query(scope=here, limit=5, until=NOON + timedelta(minutes=101.105))
    found = await log.read(find_mentions, "where is the axolotl in the greenhouse?", within, PONDS)
    assert (found.words, found.count, found.alone) == (("axolotl", "greenhouse"), 0, (0, 11))
    assert len(found.found.items) == 5
    ours = LineFilter(nicks=("Terra",), own=True)
    found = await log.read(find_mentions, "axolotl", Query(scope=here, limit=5), ours)
    assert ([each.event.text for each in found.found.items], found.count) == (["one axolotl"], 1)
    asked = await log.read(find_mentions, "greenhouse", Query(scope=here, limit=50), ours)
    assert (asked.count, len(asked.found.items)) == (13, 13)

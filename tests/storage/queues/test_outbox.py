"""What tendrils share: a message is said once, a question lives as long as somebody waits."""

from __future__ import annotations

from datetime import timedelta

from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.outbox import Outbox, OutgoingMessage, PeerQuestions, PlaceLimits
from tests.kit.lines import NOON
from tests.kit.stores import Stores

HOME = Place("irc", "#home")
LATER = NOON + timedelta(minutes=1)


async def test_messages_wait_in_order_until_said_and_leave_their_key_and_not_their_text(
    database: Database,
) -> None:
    outbox = Outbox(database)
    await outbox.put("a", HOME, "first")
    await outbox.put("a", HOME, "again")
    await outbox.put("b", Place("oftc", "#away"), "second")
    first, second = await outbox.list_unsent()
    assert (first.place, first.text) == (HOME, "first")
    assert (second.place, second.text) == (Place("oftc", "#away"), "second")
    await outbox.mark_sent(first)
    await outbox.put("a", HOME, "again")
    assert list(await outbox.list_unsent()) == [second]
    rows = await database.fetch_all("SELECT text FROM outbox ORDER BY id")
    assert [row[0] for row in rows] == ["", "second"]


async def test_one_process_hands_over_to_another_and_a_restart_loses_nothing(
    stores: Stores,
) -> None:
    async with Database.open(stores("outbox")) as sender:
        await Outbox(sender).put("a", HOME, "hello")
        async with Database.open(stores("outbox")) as receiver:
            assert [message.text for message in await Outbox(receiver).list_unsent()] == ["hello"]
    async with Database.open(stores("outbox")) as receiver:
        assert [message.text for message in await Outbox(receiver).list_unsent()] == ["hello"]


async def test_a_question_waits_for_its_tendril_until_it_is_answered(database: Database) -> None:
    questions = PeerQuestions(database)
    first = await questions.put("kettle", "hot?", LATER, NOON)
    second = await questions.put("kettle", "full?", LATER, NOON)
    await questions.put("pantry", "bread?", LATER, NOON)
    await questions.take(first)
    assert await questions.unanswered("kettle") == {first: "hot?", second: "full?"}
    assert await questions.answer_to(first) is None
    await questions.answer(first, "yes")
    assert await questions.answer_to(first) == "yes"
    assert list(await questions.unanswered("kettle")) == [second]
    await questions.remove(first)
    assert await questions.answer_to(first) is None


async def test_what_a_dead_process_had_taken_is_answered_by_the_next(database: Database) -> None:
    questions = PeerQuestions(database)
    taken = await questions.put("kettle", "hot?", LATER, NOON)
    waiting = await questions.put("kettle", "full?", LATER, NOON)
    await questions.take(taken)
    await questions.answer_taken("kettle", "it was restarted")
    assert await questions.answer_to(taken) == "it was restarted"
    assert list(await questions.unanswered("kettle")) == [waiting]


async def test_a_question_that_nobody_waits_for_any_more_goes_with_the_next(
    database: Database,
) -> None:
    questions = PeerQuestions(database)
    await questions.put("kettle", "hot?", NOON, NOON)
    new = await questions.put("kettle", "full?", LATER, LATER)
    assert list(await questions.unanswered("kettle")) == [new]


async def test_models_send_few_messages_to_a_place_and_each_once(database: Database) -> None:
    outbox, limits = Outbox(database), PlaceLimits(timedelta(minutes=10), 3)
    away = Place("irc", "#away")

    async def send(key: str, minutes: int, place: Place = HOME) -> int | None:
        """Return after how many minutes the place may have the next one."""
        message, now = OutgoingMessage(0, place, key), NOON + timedelta(minutes=minutes)
        free = await outbox.put_of_model(key, "irc", message, limits, now)
        return (free - NOON) // timedelta(minutes=1) if free else None

    await outbox.put("model", HOME, "what code says does not count")
    assert await send("a", 0) is None
    assert await send("a", 1) is None  # again: it is there already
    assert await send("b", 9, Place("irc", "#HOME")) == 10
    assert await send("b", 9, away) is None
    assert await send("c", 10) is None
    for message in await outbox.list_unsent():
        await outbox.mark_sent(message)
    assert await send("d", 21) is None
    assert await send("e", 60) == 24 * 60
    assert await send("e", 24 * 60) is None
    assert [message.text for message in await outbox.list_unsent()] == ["d", "e"]

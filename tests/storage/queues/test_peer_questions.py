"""Questions between tendrils: they live as long as somebody waits for the answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from storage.db.database import Database
from storage.queues.peer_questions import PeerQuestions, QueuedQuestion
from tests.kit.stores import Stores

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)


async def test_a_question_waits_for_its_tendril_until_it_is_answered(stores: Stores) -> None:
    async with Database.open(stores("outbox")) as database:
        questions = PeerQuestions(database)
        first = await questions.put("kettle", "hot?", LATER, NOON)
        second = await questions.put("kettle", "full?", LATER, NOON)
        await questions.put("pantry", "bread?", LATER, NOON)
        await questions.take(first)
        assert list(await questions.unanswered("kettle")) == [
            QueuedQuestion(first, "hot?", taken=True),
            QueuedQuestion(second, "full?", taken=False),
        ]
        assert await questions.answer_to(first) is None
        await questions.answer(first, "yes")
        assert await questions.answer_to(first) == "yes"
        assert [each.id for each in await questions.unanswered("kettle")] == [second]
        await questions.remove(first)
        assert await questions.answer_to(first) is None


async def test_what_a_dead_process_had_taken_is_answered_by_the_next(stores: Stores) -> None:
    async with Database.open(stores("outbox")) as database:
        questions = PeerQuestions(database)
        taken = await questions.put("kettle", "hot?", LATER, NOON)
        waiting = await questions.put("kettle", "full?", LATER, NOON)
        await questions.take(taken)
        await questions.answer_taken("kettle", "it was restarted")
        assert await questions.answer_to(taken) == "it was restarted"
        assert [each.id for each in await questions.unanswered("kettle")] == [waiting]


async def test_a_question_that_nobody_waits_for_any_more_goes_with_the_next(stores: Stores) -> None:
    async with Database.open(stores("outbox")) as database:
        questions = PeerQuestions(database)
        await questions.put("kettle", "hot?", NOON, NOON)
        new = await questions.put("kettle", "full?", LATER, LATER)
        assert [each.id for each in await questions.unanswered("kettle")] == [new]

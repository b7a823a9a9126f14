"""What holds for the words of people on IRC holds on the medium of any other tendril."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from harnesses.core.tendril.turn import ConversationQueue, TurnResult
from llm.memory.room import RoomMemory
from llm.messages.message import Question
from terrarium import Identity
from tests.kit.clock import ManualClock
from tests.kit.data_files import files_with
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.room_tendril import ADA, BOB, TEA, room_tendril, rooms_config

SECRET = "swordfish"
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


async def test_no_byte_of_a_forgotten_person_is_in_any_tendrils_file(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script:
        async with room_tendril(rooms_config(tmp_path, script.url)) as tendril:
            script.say(f"Your word is {SECRET}.")
            line = await tendril.hear(TEA, ADA, f"my word is {SECRET}, what is it?")
            result = await tendril.turn(tendril.request(line))
            tendril.log.record_own(TEA, "Terra", result.text, line)
            requester = tendril.requester(line)
            time, _ = await tendril.remind.parse_time(requester, "tomorrow at 9")
            await tendril.remind.add(requester, time, f"of {SECRET}")
            memory = RoomMemory.of(
                tendril.memory, requester.room, tendril.request(line).conversation, requester.person
            )
            await memory.store(SECRET, "word")
            await tendril.hear(TEA, BOB, "I say nothing of it")
            person = tendril.privacy.person(ADA)
            kept = await tendril.privacy.count(person)
            assert (kept.events, kept.reminders) == (1, 1)
            assert files_with(tmp_path, SECRET)
            gone = await tendril.privacy.forget(person)
            assert (gone.events, gone.is_finished) == (1, True)
            assert not await tendril.privacy.count(person)
            assert [event.nick for event in await tendril.log.recent(TEA)] == ["bob"]
        assert files_with(tmp_path, SECRET) == []


async def test_nothing_is_kept_of_whoever_opts_out_until_they_opt_in(tmp_path: Path) -> None:
    async with room_tendril(rooms_config(tmp_path)) as tendril:
        await tendril.privacy.opt_out(ADA)
        assert not (await tendril.hear(TEA, ADA, "not kept")).is_logged
        thief = Identity("ada", account="mallory@example.org")
        assert not await tendril.privacy.opt_in(thief)
        assert not (await tendril.hear(TEA, ADA, "not kept either")).is_logged
        assert await tendril.privacy.opt_in(ADA)
        assert (await tendril.hear(TEA, ADA, "kept again")).is_logged
        assert [event.text for event in await tendril.log.recent(TEA)] == ["kept again"]


async def test_a_forgetting_is_confirmed_by_its_person_once_and_in_time(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    async with room_tendril(rooms_config(tmp_path), clock) as tendril:
        privacy = tendril.privacy
        ada, bob = privacy.person(ADA), privacy.person(BOB)
        word = privacy.confirmation_word(ada)
        assert not privacy.confirms(bob, word)
        assert not privacy.confirms(ada, "another")
        assert privacy.confirms(ada, word)
        assert not privacy.confirms(ada, word)
        word = privacy.confirmation_word(ada)
        await clock.advance(timedelta(minutes=2))
        assert not privacy.confirms(ada, word)


async def test_no_question_of_who_is_forgotten_is_answered_after_that_however_it_waited() -> None:
    queue, answered = ConversationQueue(), list[str]()

    async def ask(text: str) -> None:
        async def answer() -> TurnResult:
            answered.append(text)
            return TurnResult(text)

        if await queue.wait(queue.place(Question("ada", text), joins=False)):
            await queue.run(answer())
            queue.leave()

    assert await queue.wait(queue.place(Question("ada", "first"), joins=False))
    waiting = [asyncio.create_task(ask(text)) for text in ("granted", "waiting")]
    await asyncio.sleep(0)
    queue.leave()  # grants the next one its turn, but its task has not run since
    await queue.drop()
    await asyncio.wait(waiting)
    assert (answered, len(queue)) == ([], 0)
    await ask("after")
    assert answered == ["after"]

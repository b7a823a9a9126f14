"""What any tendril records is in the shared log: found, shown to the model, scoped."""

from __future__ import annotations

from pathlib import Path

from storage.chat_log import statistics
from storage.chat_log.event import EVERYTHING, PUBLIC, Place
from storage.log import Query
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.room_tendril import ADA, BOB, TEA, room_tendril, rooms_config


async def test_a_recorded_line_is_in_the_log_that_all_tendrils_share_and_private_without_a_sign(
    tmp_path: Path,
) -> None:
    async with room_tendril(rooms_config(tmp_path)) as tendril:
        await tendril.hear(TEA, ADA, "the kettle boils at six")
        (found,) = await tendril.log.search("kettle", TEA)
        assert (found.network, found.channel, found.nick) == ("rooms", TEA, "ada")
        assert [event.text for event in await tendril.log.recent(TEA)] == [found.text]
        places = await tendril.log.chat_log.read(statistics.channels, PUBLIC)
        assert [channel.place for channel in places] == [Place("rooms", TEA)]
        await tendril.hear("ada@example.org", ADA, "my secret")
        assert await tendril.log.chat_log.find(Query(scope=PUBLIC)) == [found]
        _, event = await tendril.log.chat_log.find(Query(scope=EVERYTHING))
        assert (event.text, event.private) == ("my secret", True)
    assert (tmp_path / "irc.db").exists()


async def test_a_question_is_answered_with_the_log_of_its_room(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, room_tendril(rooms_config(tmp_path, script.url)) as it:
        await it.hear(TEA, BOB, "the kettle boils at six")
        await it.hear("#cellar", BOB, "the barrel leaks")
        script.call("search_log", {"query": "barrel"}).say("At six.")
        assert await it.ask(TEA, ADA, "hm, kettle, and so?") == "At six."
        first, second = script.requests
        assert "the kettle boils at six" in str(first["messages"])
        assert f"in the room {TEA}" in first["messages"][0]["content"]
        assert "no line has barrel" in second["messages"][-1]["content"]
        assert "barrel leaks" not in str(script.requests)


async def test_an_answer_goes_with_the_line_that_asked_for_it(tmp_path: Path) -> None:
    async with room_tendril(rooms_config(tmp_path)) as tendril:
        line = await tendril.hear(TEA, ADA, "when?")
        tendril.log.record_own(TEA, "Terra", "at six\nor so", line)
        hidden = await tendril.hear(TEA, ADA, "[nolog] and where?")
        tendril.log.record_own(TEA, "Terra", "in the kitchen", hidden)
        await tendril.log.chat_log.flush()
        events = await tendril.log.recent(TEA)
        assert [event.text for event in events] == ["when?", "at six", "or so"]
        assert [event.reply_to for event in events if event.own] == [line.pending.id] * 2


async def test_of_what_is_not_logged_nothing_is_remembered(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, room_tendril(rooms_config(tmp_path, script.url)) as it:
        await it.ask(TEA, ADA, "[nolog] is it six?")
        await it.ask(TEA, ADA, "is it seven?")
        turns = await it.conversations.turns("rooms/#tea/~ada@example.org")
        assert [turn.messages[0]["content"] for turn in turns] == ["is it seven?"]

"""What needs no model: commands in plain words, what is remembered, what the bot says of itself.

The agent server only embeds questions here, or is away: what is answered is no model's.
"""

from __future__ import annotations

from pathlib import Path

from storage.memory.memories import MemoryKind
from tests.harnesses.irc.test_privacy import texts
from tests.harnesses.irc.test_reminders import HOUR, MINUTE, scripted_life, world
from tests.kit.clock import ManualClock
from tests.kit.irc_scene import NOBODY, NOON, alice_in, room
from tests.kit.irc_tendril import ROOM, person
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.readings import by_cues

OTHER = "#other"
TINY = {"parameters": 135_000_000}
READS = by_cues(
    cancel_reminder="cancel",
    reminders="my reminders",
    recall="what",
    forget_fact="forget my",
    remind="remind me",
)
REMINDS = by_cues(remind="remind me", dice="choose between", search="search")


async def test_reminders_in_plain_words_need_no_model(tmp_path: Path) -> None:
    async with scripted_life(tmp_path) as (script, it, clock):
        script.reads, script.card = READS, dict(TINY)
        await it.alice.say(ROOM, "Terra: remind me in 20 minutes to check the oven")
        await it.alice.expect("on Fri 2026-05-01 at 12:20 UTC .reminder 1")
        await it.alice.say(ROOM, ".terrarium can you remind me tomorrow at 9 to call Mum please?")
        await it.alice.expect("on Sat 2026-05-02 at 09:00 UTC .reminder 2")
        script.reads = lambda _: "remind"
        await it.alice.say(ROOM, ".terrarium erinnere mich in einer Stunde an den Tee")
        await it.alice.expect("on Fri 2026-05-01 at 13:00 UTC .reminder 3")
        script.reads = READS
        await it.alice.ask(".remind 10m stretch", "on Fri 2026-05-01 at 12:10 UTC .reminder 4")
        await it.alice.say(ROOM, ".remind tomorrow water the plants")
        await it.alice.expect("on Sat 2026-05-02 at 09:00 UTC .reminder 5")
        assert "at 12:10 UTC: stretch" in await it.alice.told(".terrarium what are my reminders?")
        await it.alice.expect("5: Sat 2026-05-02 at 09:00 UTC: water the plants$")
        stretch = ".terrarium cancel my reminder to stretch, I have done that"
        assert await it.alice.told(stretch) == "Cancelled: stretch"
        assert "Several" in await it.alice.told(".terrarium cancel my reminder about e")
        await clock.advance(20 * MINUTE)
        await it.alice.expect(r"alice: reminder: check the oven$")
        await clock.set(NOON + HOUR)
        await it.alice.expect(r"alice: reminder: den Tee$")
        # One that has just been said counts until that is written down.
        cancelled = await it.alice.told(".terrarium cancel all my reminders")
        assert cancelled in ("Cancelled: 2 reminders.", "Cancelled: 3 reminders.")
        assert await it.alice.told(".reminders") == "You have no reminders."


async def test_a_person_has_facts_remembered_looked_up_and_removed(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, alice_in(tmp_path, script.url) as (alice, tendril):
        script.reads, script.card = READS, dict(TINY)
        first = "I will remember: your favourite tea is oolong."
        assert await alice.reply_to(".remember that my favourite tea is oolong") == first
        second = "I will remember: your wifi is hunter2."
        assert await alice.reply_to(".remember wifi hunter2") == second
        tea = await alice.reply_to(".terrarium what is my favorite tea?")
        assert tea == "Your favourite tea is oolong."
        assert await alice.reply_to(".recall wifi") == "Your wifi is hunter2."
        assert "favourite tea = oolong" in await alice.told(".recall")
        assert "favourite tea = oolong" in await alice.told(".recall tea")
        assert "called coffee" in await alice.told(".recall coffee")
        forgotten = await alice.told(".terrarium forget my favourite tea")
        assert forgotten == "Forgotten: your favourite tea."
        assert await alice.told(".forget wifi") == "Forgotten: your wifi."
        assert "no facts" in await alice.told(".recall")
        assert ".remember tea oolong" in await alice.told(".remember tea")
        assert await tendril.memory.memories.facts("irc/#terrarium") == []


async def test_what_is_kept_of_a_person_is_told_to_them_alone(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        world(tmp_path) as it,
        it.tendril(ManualClock(NOON), script.url) as tendril,
    ):
        script.reads, script.card = READS, dict(TINY)
        await it.alice.ask(".remember that I like frogs", "I will remember: I like frogs")
        await it.alice.ask(".remember my name is Ada", "your name is Ada")
        await it.alice.say(ROOM, ".terrarium what do you remember about me?")
        await it.alice.expect(
            r"NOTICE alice :\[#terrarium\] I remember these facts about you here: name = Ada"
        )
        await it.alice.expect(r"NOTICE alice :\[#terrarium\] Noted: I like frogs\.")
        await it.alice.expect(r"NOTICE alice :\[#terrarium\] Our conversation here has 0 turns")
        assert "no facts" in await it.bob.told(".memory")
        await it.alice.say("Terra", ".recall name")
        await it.alice.expect(r"NOTICE alice :I remember nothing about you called name")
        notes = await tendril.memory.memories.latest("irc/#terrarium", MemoryKind.NOTE, -1)
        assert [note.subject for note in notes] == [person("alice")]


async def test_what_is_remembered_in_one_place_is_not_told_in_another(tmp_path: Path) -> None:
    channels = {"channels": [ROOM, OTHER]}
    async with room(tmp_path, NOBODY, "alice", "bob", irc=channels) as (_, (alice, bob)):
        await alice.join(OTHER)
        await alice.reply_to(".remember pin 4711")
        assert "called pin" in await alice.told(".recall pin", OTHER)
        assert "called pin" in await bob.told(".recall pin")


async def test_nothing_is_remembered_of_who_is_not_logged(tmp_path: Path) -> None:
    async with alice_in(tmp_path, NOBODY) as (alice, tendril):
        assert "is stored" in await alice.told(".remember pin 4711 [nolog]")
        assert ".forget me deletes" in await alice.told(".nolog")
        assert "is stored" in await alice.told(".remember pin 4711")
        assert await tendril.memory.memories.facts("irc/#terrarium") == []


async def test_a_time_zone_that_is_remembered_counts_at_once(tmp_path: Path) -> None:
    async with world(tmp_path) as it, it.life(NOON):
        await it.alice.ask(".remember my time zone is Vienna", "your timezone is Europe/Vienna")
        await it.alice.ask(".remind at 18:00 tea", "on Fri 2026-05-01 at 18:00 Europe/Vienna")
        assert "no time zone Mordor" in await it.alice.told(".remember my timezone is Mordor")


async def test_the_bot_says_what_it_is_in_written_words(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, alice_in(tmp_path, script.url) as (alice, _):
        script.card = dict(TINY)
        script.reads = by_cues(help="can you do", about_bot="you")
        assert (await alice.reply_to(".terrarium who are you?")).startswith("I am Terra, a bot: ")
        assert "search the log: .search" in await alice.reply_to(".terrarium what can you do?")
        assert (await alice.reply_to(".about model")).startswith("My model is ")
        assert (await alice.reply_to(".terrarium help")).startswith(".terrarium .ask ")
        assert script.requests == []


async def test_a_capable_model_is_asked_what_commands_leave_over(tmp_path: Path) -> None:
    questions = (
        "can you remind me what the capital of France is?",
        "remember the alamo?",
        "remind me in 2 hours to check the oven and also tell me what bob said about the pump",
        "erinnere mich morgen um 9 an den Sensor und sag mir, was dieter dazu gesagt hat",
        "choose between hagen and staging for the transcoder, given what ada said",
        "search for the pump thing and summarise it in one line",
        "search the log for who broke staging and tell me",
    )
    async with ScriptedOpenAI() as script, alice_in(tmp_path, script.url) as (alice, _):
        for question in questions:
            script.say("Gladly.")
            assert await alice.reply_to(f".terrarium {question}") == "Gladly."
        script.reads = REMINDS
        assert "Picked at random" not in str(script.requests)
        assert "on " in await alice.reply_to(".terrarium remind me in 2 hours to check the oven")
        choice = ".terrarium choose between hagen and staging"
        assert "Picked" in await alice.reply_to(choice)
        assert len(script.requests) == len(questions)
    async with ScriptedOpenAI() as script:
        script.card = dict(TINY)  # it is spared all that a form recognises
        script.reads = REMINDS
        async with alice_in(tmp_path / "tiny", script.url) as (alice, _):
            await alice.reply_to(
                ".terrarium remind me in 2 hours to call bob, and who has the key?"
            )
            await alice.reply_to(f"{choice}, whichever is better")
            assert script.requests == []


async def test_forget_me_in_plain_words_is_not_logged_and_asks_back(tmp_path: Path) -> None:
    irc = {"command_prefix": "!"}
    async with (
        ScriptedOpenAI() as script,
        alice_in(tmp_path, script.url, irc=irc) as (alice, tendril),
    ):
        await alice.ask("my word", "PRIVMSG alice :", room="Terra")
        word = (await alice.told("forget me", "Terra")).split()[-1]
        assert (await alice.told(f"forget me {word}", "Terra")).startswith("Forgotten: ")
        assert "forget me" not in "".join(await texts(tendril))
        await alice.say(ROOM, "a word")
        asked = await alice.ask("!forget me", r"NOTICE alice :.* two minutes: (!forget me \w+)$")
        assert (await alice.told(asked[1])).startswith("Forgotten: "), "as it is printed"

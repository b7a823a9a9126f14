"""A data folder in which somebody has asked and been answered things, in private and public."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from storage.chat_log.event import Place
from storage.db.database import Database
from storage.log import ChatLog
from storage.memory.conversations import Conversations, Turn
from storage.memory.memories import Memories, Memory, MemoryKind
from storage.memory.skills import SkillTable, TaughtSkill
from storage.queues.outbox import Outbox
from storage.queues.pastes import Pastes
from storage.queues.reminders import Owner, Reminder, Reminders
from storage.runs.runs import Effect, Run, RunEnd, Runs
from tests.kit.lines import NOON, said

VERA = Owner("irc", "vera", "~vera", "home.example", None)
ROOM, OTHER, HERE = "vera!~vera@home.example", "#other", "#terrarium"
LINES = (
    "the spare key lies under the green pot by the door of the shed",
    "please write to maria.huber@firm.example about the contract",
    "do you know what a",
    "can you tell me about",
    "what is the best way",
    "my password is correct-horse-battery-staple",
    "we will sell the house in spring when the snow is gone",
    "see https://private.example/share/8f2c1d",
    "I hand in my notice on the first of June",
    "no",
)
ANSWERS = (
    "Under the green pot, as you said: the spare key lies there by the door.",
    "The capital of France is Paris, which lies on the river Seine in the north.",
    "I can tell you about many things, just ask me one after the other.",
)
FACT = "a very old tortoise that is called Methuselah the Magnificent"
RUN, STEP = 8, 3  # words of a guess, and words from one such guess to the next


def guesses() -> Iterator[str]:
    """Yield words that are in Vera's data: whole lines, parts of lines, single words."""
    for text in (*LINES, *ANSWERS, FACT):
        yield text
        yield text.upper()
        yield f"[2026-05-01 12:00:00] <vera> {text}"
        words = text.split()
        yield from (" ".join(words[at : at + RUN]) for at in range(0, len(words) - RUN, STEP))
        yield from (word for word in words if len(word) > 3)


async def fill_others(data: Path) -> None:
    """Fill the stores of three tendrils with what Vera has said, asked and been answered."""
    async with Database.open(data / "irc.db") as database:
        log, conversations = ChatLog(database), Conversations(database)
        for channel in (ROOM, OTHER, HERE):
            for number, text in enumerate(LINES):
                await _ask(log, conversations, channel, text, ANSWERS[number % len(ANSWERS)])
        await _fill_tables(database)
    async with Database.open(data / "web.db") as database:
        for text in LINES:
            messages = [_message("user", text), _message("assistant", text)]
            await Conversations(database).add("browser/1", Turn(0, NOON, tuple(messages)))
    async with Database.open(data / "outbox.db") as database:
        for number, text in enumerate((*LINES, *ANSWERS)):
            await Outbox(database).put(f"{number}", Place("irc", OTHER), text)


async def _ask(
    log: ChatLog, conversations: Conversations, channel: str, text: str, answer: str
) -> None:
    place = Place("irc", channel)
    hers = said(text, place=place, nick=VERA.nick, user=VERA.user, host=VERA.host)
    (asked,) = await log.add([hers])
    quotes = frozenset({asked})
    ours = said(answer, place=place, nick="Terra", own=True, reply_to=asked, quotes=quotes)
    await log.add([ours])
    messages = (
        _message("user", text),
        _message("tool", f"[2026-05-01 12:00:00] <vera> {text}", asked),
        _message("assistant", answer, asked),
    )
    name = f"irc/{channel}" if channel == ROOM else f"irc/{channel}/vera"
    await conversations.add(name, Turn(asked, NOON, messages), f"irc/{channel}", VERA.nick)


def _message(role: str, content: str, *quotes: int) -> dict[str, object]:
    return {"role": role, "content": content, "quotes": quotes}


async def _fill_tables(database: Database) -> None:
    place, hour = Place("irc", ROOM), timedelta(days=20_000)
    for number, text in enumerate((*LINES, *ANSWERS, FACT)):
        key = f"key {number}"
        for layer in (MemoryKind.FACT, MemoryKind.NOTE):
            memory = Memory(
                layer=layer, room=f"irc/{ROOM}", text=text, time=NOON, subject="vera", key=key,
                source="vera", conversation=f"irc/{ROOM}",
            )  # fmt: skip
            await Memories(database).add(memory)
        await Runs(database).begin(Run(key, f"irc/{OTHER}/vera", "standard", "terra", NOON))
        await Runs(database).begin_effect(key, Effect("e", "say", text))
        await Runs(database).end(key, RunEnd(NOON, "answered"), ())
        await Pastes(database).add(place, VERA.nick, text, (text,), hour)
        await Reminders(database).add(Reminder(VERA, place, True, text, NOON + hour))
        skill = TaughtSkill(f"skill-{number}", text, text, VERA.nick)
        await SkillTable(database).teach(f"irc/{ROOM}", skill, NOON)


def rows_of(data: Path) -> set[tuple[object, ...]]:
    """Return all rows of all tables in the folder, each after its file and table, except those that
    each erasure writes anew (jobs, and amounts of tokens, which lose the names of all rooms), and
    numbers of events, which other people change too."""
    found: set[tuple[object, ...]] = set()
    for path in data.glob("*.db"):
        with closing(sqlite3.connect(path)) as file:
            sql = "SELECT name FROM pragma_table_list WHERE type = 'table'"
            for (table,) in file.execute(sql).fetchall():
                if not table.startswith(("sqlite_", "jobs", "spending", "totals")):
                    rows = file.execute(f"SELECT * FROM {table}")
                    found |= {(path.name, table, *row) for row in rows}
    return found

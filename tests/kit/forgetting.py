"""Erasure of a person from a data folder that has them in every file, with injected faults."""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from io import StringIO
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Timer

from storage.chat_log.event import EVERYTHING, Event, EventType, Place
from storage.db.database import Database
from storage.db.errors import StorageError
from storage.log import ChatLog
from storage.memory.conversations import Conversations, Message, Turn
from storage.memory.memories import OWN, Memories, Memory, MemoryKind
from storage.memory.skills import SkillTable, TaughtSkill
from storage.privacy.audit_log import AuditEntry, AuditLog
from storage.privacy.erasure import Forgotten, Person, forget, resume_erasures
from storage.queues.outbox import Outbox
from storage.queues.pastes import Pastes
from storage.queues.reminders import Owner, Reminder, Reminders
from storage.queues.reports import Claim, ReportContent, Reports
from storage.runs.runs import Effect, Run, RunEnd, Runs
from storage.usage.usage import Spending, TokenSpend, UsageAmount
from tests.kit import lines
from tests.kit.lines import NOON

PERSON = Person("irc", "zoequux", "~zuserquux", "zhostquux.example", None)
WORD = "xyzzyplughplover"
TRACES = (PERSON.nick, PERSON.user, PERSON.host, WORD, "frobnicate")
"""Strings that occur only in the person's data."""
FILES = ("web.db", "cron.db", "pond.db")
LINES = 150
PLACE = Place("irc", "#frogs")
HERS = f"{PLACE}/{PERSON.nick}"


def said(text: str, minute: int, nick: str = PERSON.nick) -> Event:
    """Return a line of the person or of `nick`."""
    user, host = (PERSON.user, PERSON.host) if nick == PERSON.nick else (f"~{nick}", "b.example")
    return lines.said(text, minute, place=PLACE, nick=nick, user=user, host=host)


def turn(anchor: int, *contents: str, quotes: Sequence[int] = ()) -> Turn:
    """Return a turn; `contents` are the question, a tool's result, which `quotes` lines of the log,
    and the answer."""
    roles = ["user", "tool", "assistant"]
    messages: list[Message] = [
        {"role": role, "content": content} for role, content in zip(roles, contents, strict=False)
    ]
    messages[1]["quotes"] = quotes
    return Turn(anchor, NOON, tuple(messages))


async def fill(data: Path) -> None:
    """Fill a data folder with data of the person in every file and table, and with others'."""
    quoted = f"[2026-05-01 12:03:00] <{PERSON.nick}> {WORD} frobnicate number 3"
    async with Database.open(data / "irc.db") as database, ChatLog.open(database) as log:
        hers: list[int] = []
        for number in range(LINES):
            mine = said(f"{WORD} frobnicate number {number}", number)
            hers += (await log.add([mine, said(f"others speak of {number}", number, "bob")]))[:1]
        (asked,) = await log.add([said(f".terrarium frobnicate {WORD}", LINES)])
        reply = said(f"{PERSON.nick}: {WORD} it is", LINES + 1, "Terra")
        notice = replace(reply, channel=PERSON.nick, type=EventType.NOTICE, text="Cancelled.")
        await log.add([replace(reply, own=True, reply_to=asked), replace(notice, own=True)])
        await _fill_records(database, asked, quoted, hers[3:4])
    for name in FILES:
        async with Database.open(data / name) as database:
            conversations = Conversations(database)
            for number in range(20):
                await conversations.add("x/1", turn(0, "hm?", f"others speak of {number}", "So."))
                asking = turn(0, "who was it?", quoted, f"{number}", quotes=hers[3:4])
                await conversations.add("x/1", asking)
            runs = Runs(database)
            await runs.begin(Run("k", "x/1", "standard", "terra", NOON))
            await runs.begin_effect("k", Effect("e", "say"))
            await runs.end_effect("k", Effect("e", "say", quoted))
            await runs.end("k", RunEnd(NOON, "answered", quotes=frozenset(hers[3:4])), ())
    async with Database.open(data / "outbox.db") as database:
        await Outbox(database).put("k", PLACE, f"Of today: {quoted}", quotes=hers[3:4])
    await asyncio.to_thread(shutil.copy, data / "irc.db", data / "irc.db.before-16")


async def _fill_records(database: Database, asked: int, quoted: str, quotes: Sequence[int]) -> None:
    """Fill the other tables of the log's database."""
    conversations, hour = Conversations(database), timedelta(hours=1)
    reports, mine = Reports(database), Claim(text=f"{WORD} it is", lines=[*quotes])
    for number, nick in ((asked, PERSON.nick), (0, "bob")):
        owner = Owner(PLACE.network, nick, *((PERSON.user, PERSON.host) if number else ()))
        what = f"what is {WORD}?" if number else "what did she say?"
        token = await reports.add(PLACE, owner, nick, number, what, EVERYTHING)
        assert token
        report = await reports.get(token)
        assert report
        assert await reports.save(report, ReportContent(answer=[mine]))
    answer = turn(asked, f"what is {WORD}?", "", f"{WORD}!")
    await conversations.add(HERS, answer, str(PLACE), PERSON.nick)
    asking = turn(1, "what did she say?", quoted, "A word.", quotes=quotes)
    await conversations.add(f"{PLACE}/bob", asking)
    await conversations.add(f"{PLACE}/bob", turn(2, "and now?", "", "Nothing."))
    fact = Memory(
        layer=MemoryKind.FACT,
        room=str(PLACE),
        text="frobnicate",
        time=NOON,
        subject=PERSON.nick,
        key="tool",
        source=PERSON.nick,
        confidence=OWN,
        conversation=HERS,
        first_turn=1,
        last_turn=1,
    )
    await Memories(database).add(fact)
    run = Run("k", HERS, "standard", "terra", NOON, asked)
    await Runs(database).begin(run)
    await Runs(database).begin_effect("k", Effect("e", "say", f"said {WORD}"))
    await Pastes(database).add(PLACE, PERSON.nick, "A long one.", ("More.",), hour, [asked])
    await Pastes(database).add(PLACE, "bob", f"She said {WORD}.", (), hour, quotes)
    await Reminders(database).add(Reminder(PERSON.owner, PLACE, False, "frobnicate", NOON))
    expense = TokenSpend(NOON.date(), str(PLACE), f"irc/{HERS}", "answer")
    await Spending(database).add({expense: UsageAmount(1, 20, 0, 3)})
    lesson = TaughtSkill("oil", "when it squeaks", f"Oil the {WORD} pump.", PERSON.nick)
    await SkillTable(database).teach(str(PLACE), lesson, NOON)
    for target in (PERSON.nick, f"*!*@{PERSON.host}"):
        await AuditLog(database).add(AuditEntry(PLACE, "root!r@r.example", "kick", target, "spam"))


def leftovers(data: Path) -> list[str]:
    """Return each file that still contains a trace of the person, with the trace.

    Searches the raw bytes of all files, including free pages and write-ahead logs.
    """
    found = []
    for path in sorted(data.rglob("*")):
        content = path.read_bytes().lower() if path.is_file() else b""
        found += [f"{path.name}: {trace}" for trace in TRACES if trace.encode() in content]
    return found


async def ask(data: Path) -> Forgotten:
    """Erase the person, as the command does."""
    async with Database.open(data / "irc.db") as database:
        return await forget(ChatLog(database), PERSON, data)


async def restart(data: Path) -> bool:
    """Resume pending erasures, as every tendril does at start; return True if none is left."""
    return await resume_erasures(data / "irc.db", data)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault to inject: SIGKILL after some seconds, or a limit on the size of files in bytes."""

    kill_after: float | None = None
    longest_file: int | None = None


def forget_in_child(data: Path, fault: Fault, *, resumes: bool = False) -> str:
    """Erase the person, or resume that, in a child process with a fault.

    Returns "finished", "not finished", "not begun" (the erasure could not be recorded) or "killed".
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(data, fault, resumes, theirs))
    killer = Timer(fault.kill_after or 0.0, process.kill)
    process.start()
    theirs.close()
    ended = "killed"
    with mine, suppress(EOFError):
        mine.recv_bytes()  # the child begins only now: its start does not count for the timer
        if fault.kill_after is not None:
            killer.start()
        ended = mine.recv_bytes().decode()
    killer.cancel()
    if killer.is_alive():
        killer.join()
    process.join()
    process.close()
    return ended


def _run(data: Path, fault: Fault, resumes: bool, outcome: Connection) -> None:
    if fault.longest_file is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.longest_file, hard))
    outcome.send_bytes(b"begun")
    try:
        with redirect_stdout(StringIO()):  # suppress the log: errors are expected
            done = asyncio.run(restart(data)) if resumes else asyncio.run(ask(data)).is_finished
        outcome.send_bytes(b"finished" if done else b"not finished")
    except StorageError:
        outcome.send_bytes(b"not begun")


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[bool]:
    """Mount a tmpfs of `size` bytes on a folder; yield True, or False without the permission."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


def fresh_copy(original: Path, data: Path) -> Path:
    """Replace the folder `data` by a copy of `original`, and return it."""
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(original, data)
    return data

"""The live tail, as a program reads it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2

from harnesses.web.app_state import LogChangeNotifier
from storage.chat_log.event import PUBLIC
from storage.db.database import Database
from storage.log import ChatLog, Query
from tests.kit.patience import PATIENCE
from tests.kit.web_site import WebSite, event, excerpt, web_site

_APPEND = """
import asyncio, sys
from datetime import UTC, datetime
from pathlib import Path
from storage.log import ChatLog
from storage.db.database import Database
from storage.chat_log.event import Event, EventType

async def main() -> None:
    async with Database.open(Path(sys.argv[1])) as database, ChatLog.open(database) as log:
        await log.append(Event(network="irc", channel="#ubuntu", type=EventType.PRIVMSG,
                               time=datetime.now(UTC), nick="process", text="from elsewhere"))

asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Sent:
    """One event of a stream."""

    id: str
    data: Any


@asynccontextmanager
async def stream(
    site: WebSite, path: str, last_event_id: str | None = None
) -> AsyncIterator[AsyncIterator[Sent]]:
    """The events of a stream, the position it begins with first."""
    headers = {"last-event-id": last_event_id} if last_event_id else {}
    async with (
        asyncio.timeout(PATIENCE),
        site.http.stream("GET", path, headers=headers, timeout=PATIENCE) as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        async with aclosing(_events(response)) as events:
            yield events


async def _events(response: httpx2.Response) -> AsyncGenerator[Sent, None]:
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if name:
            fields[name] = value
        elif fields:
            yield Sent(fields.get("id", ""), json.loads(fields.get("data", "null")))
            fields = {}


async def test_a_stream_begins_now_and_who_comes_back_misses_nothing(filled: WebSite) -> None:
    async with stream(filled, "/api/stream") as events:
        assert await anext(events) == Sent(str(filled.ids[-1]), None)
        number = await filled.said("hello")
        sent = await anext(events)
        assert (sent.id, sent.data["text"]) == (str(number), "hello")
    async with stream(filled, "/api/stream") as events:
        position = (await anext(events)).id
    for count in range(1, 451):  # more than one batch
        await filled.said(str(count))
    old = f"/api/stream?after_id={filled.ids[-1]}"
    async with stream(filled, old, last_event_id=position) as events:
        await anext(events)
        texts = [(await anext(events)).data["text"] for _ in range(450)]
        assert texts == [str(count) for count in range(1, 451)]
        await filled.said("live again")
        assert (await anext(events)).data["text"] == "live again"


async def test_a_line_that_another_process_logs_arrives(filled: WebSite) -> None:
    async with stream(filled, "/api/stream?channel=%23ubuntu") as events:
        await anext(events)
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _APPEND, str(filled.data / "irc.db")),
            cwd=Path(__file__).parents[4],
        )
        assert (await anext(events)).data["text"] == "from elsewhere"
        assert await child.wait() == 0


async def test_a_stream_has_one_channel_or_all_and_nothing_private(site: WebSite) -> None:
    one_channel = "/api/stream?channel=irc/%23a"
    async with stream(site, one_channel) as of_one, stream(site, "/api/stream") as of_all:
        await asyncio.gather(anext(of_one), anext(of_all))
        for text, channel in (("private", "ada"), ("other", "#b"), ("mine", "#a")):
            await site.said(text, channel=channel)
        assert (await anext(of_one)).data["text"] == "mine"
        assert [(await anext(of_all)).data["text"] for _ in range(2)] == ["other", "mine"]


async def test_many_readers_get_the_same_lines(site: WebSite) -> None:
    listening = asyncio.Barrier(21)

    async def read() -> list[str]:
        async with stream(site, "/api/stream") as events:
            await anext(events)
            await listening.wait()
            return [(await anext(events)).data["text"] for _ in range(30)]

    async with asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(read()) for _ in range(20)]
        await listening.wait()
        for number in range(30):
            await site.said(str(number))
    assert all(reader.result() == [str(n) for n in range(30)] for reader in readers)


async def test_one_line_of_the_far_future_does_not_end_the_live_view(tmp_path: Path) -> None:
    future = event("I am early", time=datetime(2099, 1, 1, tzinfo=UTC))
    async with web_site(tmp_path, events=[*excerpt(), future]) as site:
        async with stream(site, "/api/stream") as events:
            await anext(events)
            for number in range(3):
                await site.said(f"now {number}")
                assert (await anext(events)).data["text"] == f"now {number}"
            last = await site.said("seen")
            assert (await anext(events)).id == str(last)
        await site.said("in between")
        tail = f"/tail/irc/%23ubuntu?after_id={site.ids[-1]}"  # which the page shows as the last
        for path, last_id in (("/api/stream", str(last)), (tail, str(last))):
            async with stream(site, path, last_event_id=last_id) as events:
                await anext(events)
                sent = (await anext(events)).data
                assert "in between" in (sent.get("text") or sent["html"])
        async with stream(site, tail) as events:
            await anext(events)
            texts = [(await anext(events)).data["html"] for _ in range(5)]
            assert "now 0" in texts[0]
            assert "in between" in texts[4]


async def test_neither_jumps_of_the_clock_nor_imports_hide_or_double_a_line(tmp_path: Path) -> None:
    jumps = [0, 40 * 365, 0, -3650, -3650, 0, 2, 0]  # days by which our clock is wrong
    async with web_site(tmp_path) as site, stream(site, "/api/stream") as events:
        await anext(events)
        for number, days in enumerate(jumps):
            await site.said(str(number), time=datetime.now(UTC) + timedelta(days=days))
        await site.log.add(excerpt())  # history that is imported meanwhile is not shown as new
        await site.said("and now")
        texts = [(await anext(events)).data["text"] for _ in (*jumps, "and now")]
        assert texts == [*(str(number) for number in range(len(jumps))), "and now"]


async def test_a_line_that_arrives_among_those_missed_is_shown_once(tmp_path: Path) -> None:
    async def is_open() -> bool:
        return True

    # More than one piece; what is said now gets an id before that of the last one.
    early, begin = datetime(2099, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
    missed = [event(f"line {n}", time=begin + timedelta(seconds=n)) for n in range(1_000)]
    missed.append(event("I am early", time=early))
    async with Database.open(tmp_path / "irc.db") as database, ChatLog.open(database) as log:
        await log.add(missed)
        notifier = LogChangeNotifier(log)
        events = notifier.events(Query(scope=PUBLIC), is_open)
        texts = [(await anext(events)).text]
        for text in ("meanwhile", "last"):
            await log.append(event(text))
        while len(texts) < len(missed) + 2:
            texts.append((await anext(events)).text)
    assert texts == [*(each.text for each in missed), "meanwhile", "last"]

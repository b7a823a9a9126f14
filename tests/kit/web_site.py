"""The real web tendril on a free port, reading a real log that another connection writes.

async with web_site(tmp_path, events=excerpt()) as site:
    answer = await site.http.get("/api/channels")
    await site.said("hello")
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2

from harnesses.core.tendril.status import ProcessState, read_report
from harnesses.logs.formats import FORMATS, ParsedLine
from harnesses.web.tendril import WebTendril
from storage.chat_log.event import Event, Place
from storage.db.database import Database
from storage.log import ChatLog
from terrarium.config import Config
from tests.kit.lines import said
from tests.kit.patience import PATIENCE

NETWORK, CHANNEL = "irc", "#ubuntu"
DATA = Path(__file__).parents[1] / "data"
NOBODY = "http://127.0.0.1:9"  # no agent server listens there
PAGE = {"accept": "text/html"}  # the header of a browser
_MORNING = datetime(2004, 11, 15, 3, 0, tzinfo=UTC)
_AFTERNOON = datetime(2009, 10, 1, 15, 56, tzinfo=UTC)


def bearer(token: str) -> dict[str, str]:
    """Return the header with a token, none for ""."""
    return {"authorization": f"Bearer {token}"} if token else {}


def event(text: str, **values: Any) -> Event:
    """Return a message of ada in the channel with the current time; `values` override fields."""
    return said(text, place=Place(NETWORK, CHANNEL), **{"time": datetime.now(UTC), **values})


def excerpt() -> list[Event]:
    """Return 210 real lines of a morning, in strictly increasing order of time."""
    return list(_events("ubuntu-excerpt.txt", _MORNING))


def two_days() -> list[Event]:
    """Return the excerpt and 600 real lines of an afternoon five years later."""
    return [*excerpt(), *_events("ubuntu-600-lines.txt", _AFTERNOON)]


def _events(name: str, begin: datetime) -> Iterator[Event]:
    time = begin
    for line in (DATA / name).read_text(encoding="utf-8").splitlines():
        parsed = FORMATS["ubuntu"].parse(line)
        assert isinstance(parsed, ParsedLine), line
        time += timedelta(milliseconds=1)
        if clock := parsed.when.clock:
            time = max(time, begin.replace(hour=clock.hour, minute=clock.minute))
        kind, target = parsed.type, parsed.target
        yield event(parsed.text, nick=parsed.nick, time=time, type=kind, target=target)


@dataclass(frozen=True, slots=True)
class WebSite:
    """A running site: its URL, an HTTP client for it, and a writer of its log."""

    url: str
    http: httpx2.AsyncClient
    log: ChatLog
    data: Path
    ids: Sequence[int]  # of the initial events

    async def said(self, text: str, **values: Any) -> int:
        """Log a line as the IRC tendril would, and return its id."""
        return await self.log.append(event(text, **values))

    async def get(self, path: str, **params: Any) -> Any:
        """Return the JSON at a path; assert status 200."""
        answer = await self.http.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def page(self, path: str, token: str = "") -> str:
        """Return the page at a path, as a browser asks for it; assert status 200."""
        answer = await self.http.get(path, headers=PAGE | bearer(token))
        assert answer.status_code == 200, answer.text
        return answer.text

    async def ask(self, text: str, **body: Any) -> list[dict[str, Any]]:
        """Ask in the chat box; return the lines of the answer."""
        answer = await self.http.post("/chat", json={"text": text, **body})
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    def client(self, **headers: str) -> httpx2.AsyncClient:
        """Return another client, without the cookies of `http`."""
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=PATIENCE)


@asynccontextmanager
async def web_site(
    data: Path,
    *,
    events: Sequence[Event] = (),
    settings: dict[str, Any] | None = None,
    agent_url: str = NOBODY,
    tables: Mapping[str, Mapping[str, Any]] | None = None,
    kind: type[WebTendril] = WebTendril,
) -> AsyncIterator[WebSite]:
    """Run the tendril with a log of `events`; stop it on exit.

    `settings` is the table `[web]`; `tables` are further tables.
    """
    own = {"web": {"port": 0, **(settings or {})}, "agent": {"api_url": agent_url}}
    config = Config({**own, **(tables or {})}, None, data)
    async with Database.open(data / "irc.db") as database, ChatLog.open(database) as log:
        ids = await asyncio.gather(*(log.append(each) for each in events))
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(kind(config).run())
            try:
                url = await ready(data, running)
                async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE, verify=False) as http:
                    yield WebSite(url, http, log, data, ids)
            finally:
                running.cancel()


async def ready(data: Path, running: asyncio.Task[None]) -> str:
    """Wait until the tendril is ready and return its URL.

    Raises TimeoutError, and RuntimeError if the tendril ends before.
    """
    begin = datetime.now(UTC)
    async with asyncio.timeout(PATIENCE):
        while not running.done():
            told = read_report(data, "web")
            if told and told.state is ProcessState.READY and told.time > begin:
                return told.detail
            await asyncio.sleep(0.01)
    raise RuntimeError("the web tendril ended before it was ready")

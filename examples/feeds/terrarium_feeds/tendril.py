"""Watches feeds: what is new is posted to a channel, with a sentence that sums it up."""

from __future__ import annotations

import asyncio
import html
import json
import re
from dataclasses import dataclass
from pathlib import Path

import feedparser
import httpx2
from pydantic import Field

from terrarium import Settings, Tendril, TurnRequest, escape_tags, tool

MOST_BYTES = 5_000_000  # of a feed
LONGEST_TITLE, LONGEST_SUMMARY, LONGEST_ENTRY = 150, 300, 8_000  # characters
REMEMBERED = 2_000  # ids of a feed


class FeedsSettings(Settings):
    """The table [feeds] of terrarium.toml."""

    table = "feeds"

    urls: dict[str, str] = Field(default_factory=dict, description="addresses of feeds, by name")
    channel: str = Field("#terrarium", description="where to post")
    tendril: str = Field("irc", description="the tendril that posts")
    every: float = Field(15, gt=0, description="minutes between looks at the feeds")


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a feed; all of it is what a stranger has written."""

    id: str
    title: str
    link: str
    text: str


class FeedsTendril(Tendril):
    """Looks at each feed in turn, and posts what it has not posted before."""

    name = "feeds"
    asked_about = "what is new in the feeds that are watched"

    async def serve(self) -> None:
        self.settings = self.config.section(FeedsSettings)
        self.posted = PostedIds(self.config.data / "feeds.json")
        self.newest: dict[str, list[Entry]] = {}
        self.problems: dict[str, str] = {}
        async with httpx2.AsyncClient(timeout=30, follow_redirects=True) as self.http:
            self.status.ready(f"{len(self.settings.urls)} feeds for {self.settings.channel}")
            while True:
                for name, url in self.settings.urls.items():
                    await self.look(name, url)
                await asyncio.sleep(60 * self.settings.every)

    async def look(self, name: str, url: str) -> None:
        """Post what is new in a feed, the oldest first. Of one that is seen for the first time,
        that is its newest entry."""
        try:
            entries = read_entries(await self.fetch(url))
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            self.problems[name] = (
                f"the feed {name} cannot be read: {str(error) or type(error).__name__}"
            )
        else:
            self.problems.pop(name, None)
            self.newest[name] = entries
            if not self.posted.knows(name):
                self.posted.add(name, *(entry.id for entry in entries[1:]))
            for entry in reversed(entries):
                if not self.posted.has(name, entry.id) and not await self.post(name, entry):
                    break  # the model is away: the rest waits for the next look
        self.status.report_trouble("; ".join(self.problems.values()))

    async def fetch(self, url: str) -> bytes:
        """Return a feed. Raises HTTPError, and ValueError for one that is too long."""
        content = bytearray()
        async with self.http.stream("GET", url) as answer:
            answer.raise_for_status()
            async for piece in answer.aiter_bytes():
                content += piece
                if len(content) > MOST_BYTES:
                    raise ValueError(f"it is longer than {MOST_BYTES:,} bytes")
        return bytes(content)

    async def post(self, name: str, entry: Entry) -> bool:
        """Post an entry, once whatever happens; return False while the model is away."""
        text = escape_tags(f"{entry.title}\n{entry.text}"[:LONGEST_ENTRY])
        result = await self.turn(
            TurnRequest(
                conversation=f"feeds/{name}",
                who="feeds",
                text=f"Sum up this entry in one sentence.\n<entry>\n{text}\n</entry>",
                priority="background",
                profile="job",
                keeps=False,
            )
        )
        if not result.ok:
            return False
        summary = plain(result.text, LONGEST_SUMMARY)
        # With the same key it is said once, also when we are killed before it is noted.
        await self.outbox.say(
            self.settings.tendril,
            self.settings.channel,
            " ".join(filter(None, [f"[{name}] {entry.title}:", summary, entry.link])),
            key=f"{name} {entry.id}",
        )
        self.posted.add(name, entry.id)
        return True

    @tool(reads=True)
    async def latest_entries(self, feed: str = "") -> list[str]:
        """List the titles and links of the newest entries of one feed, or of all."""
        return [
            f"[{name}] {entry.title} {entry.link}"
            for name, entries in self.newest.items()
            if feed in ("", name)
            for entry in entries[:10]
        ]


class PostedIds:
    """The ids of the entries that were posted, by feed, in a JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids: dict[str, list[str]] = json.loads(path.read_text()) if path.exists() else {}

    def knows(self, feed: str) -> bool:
        """Return whether the feed was seen before."""
        return feed in self._ids

    def has(self, feed: str, entry: str) -> bool:
        """Return whether an entry was posted."""
        return entry in self._ids.get(feed, ())

    def add(self, feed: str, *entries: str) -> None:
        """Remember entries of a feed, in the file before this returns."""
        self._ids[feed] = [*self._ids.get(feed, ()), *entries][-REMEMBERED:]
        written = self._path.with_suffix(".tmp")
        written.write_text(json.dumps(self._ids))
        written.replace(self._path)


def read_entries(content: bytes) -> list[Entry]:
    """Return the entries of a feed, the newest first as feeds have them. Raises ValueError for what
    is no feed."""
    feed = feedparser.parse(content)
    if not feed.version:
        raise ValueError("it is no feed")
    return [
        Entry(
            id=str(entry.get("id") or entry.get("link") or entry.get("title", "")),
            title=plain(entry.get("title", ""), LONGEST_TITLE),
            link=link if (link := str(entry.get("link", ""))).startswith("http") else "",
            text=plain(entry.get("summary", ""), LONGEST_ENTRY),
        )
        for entry in feed.entries
    ]


def plain(text: str, longest: int) -> str:
    """Return a text without HTML, control characters and line ends, cut to a length."""
    words = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())
    words = "".join(char for char in words if char.isprintable())
    return words if len(words) <= longest else f"{words[: longest - 3].rstrip()}..."

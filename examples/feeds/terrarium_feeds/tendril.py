"""Tendril that watches feeds and posts new entries to a channel, each with a summary."""

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
REMEMBERED = 2_000  # ids per feed
MOST_ENTRIES = 1_000  # the newest of a feed: fewer than ids, or an old entry would become new again


class FeedsSettings(Settings):
    """The table [feeds] of terrarium.toml."""

    table = "feeds"

    urls: dict[str, str] = Field(default_factory=dict, description="addresses of feeds, by name")
    channel: str = Field("#terrarium", description="where to post")
    tendril: str = Field("irc", description="the tendril that posts")
    every: float = Field(15, gt=0, description="minutes between looks at the feeds")


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a feed. All fields are untrusted text."""

    id: str
    title: str
    link: str
    text: str


class FeedsTendril(Tendril):
    """Polls the feeds in turn and posts entries that it has not posted before."""

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
        """Post the new entries of a feed, oldest first; of a feed not seen before, only the newest.

        An unreadable feed is reported in the tendril's status until it can be read again.
        """
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
                # Oldest first, so that the newest ids are the ones that are kept.
                self.posted.add(name, *(entry.id for entry in reversed(entries[1:])))
            for entry in reversed(entries):
                if not self.posted.has(name, entry.id) and not await self.post(name, entry):
                    break  # the model is unavailable: retry from here at the next poll
        self.status.report_trouble("; ".join(self.problems.values()))

    async def fetch(self, url: str) -> bytes:
        """Return the content of a feed.

        Raises HTTPError, InvalidURL, and ValueError if it is longer than MOST_BYTES.
        """
        content = bytearray()
        async with self.http.stream("GET", url) as answer:
            answer.raise_for_status()
            async for piece in answer.aiter_bytes():
                content += piece
                if len(content) > MOST_BYTES:
                    raise ValueError(f"it is longer than {MOST_BYTES:,} bytes")
        return bytes(content)

    async def post(self, name: str, entry: Entry) -> bool:
        """Post an entry exactly once, with a summary; return False if the model is unavailable."""
        # Untrusted text: `escape_tags` knows the reserved tags of prompts, such as <system>, not
        # our <entry>, so every "<" is escaped.
        text = f"{entry.title}\n{entry.text}"[:LONGEST_ENTRY].replace("<", "&lt;")
        text = escape_tags(text)
        result = await self.turn(
            TurnRequest(
                conversation=f"feeds/{name}",
                who="feeds",
                text=f"Sum up this entry in one sentence.\n<entry>\n{text}\n</entry>",
                priority="background",
                trigger="job",
                keeps=False,
            )
        )
        if not result.ok:
            return False
        summary = plain(result.text, LONGEST_SUMMARY)
        title = f" {entry.title}:" if entry.title else ""
        # The key makes this idempotent: the outbox delivers it once, even if the process is killed
        # before the id is stored below and posts the entry again after a restart.
        await self.outbox.say(
            self.settings.tendril,
            self.settings.channel,
            " ".join(filter(None, [f"[{name}]{title}", summary, entry.link])),
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
    """The ids of posted entries by feed, stored in a JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids: dict[str, list[str]] = json.loads(path.read_text()) if path.exists() else {}

    def knows(self, feed: str) -> bool:
        """Return True if the feed was seen before."""
        return feed in self._ids

    def has(self, feed: str, entry: str) -> bool:
        """Return True if an entry was posted."""
        return entry in self._ids.get(feed, ())

    def add(self, feed: str, *entries: str) -> None:
        """Store ids of a feed, keeping the last REMEMBERED; the file is written on return."""
        self._ids[feed] = [*self._ids.get(feed, ()), *entries][-REMEMBERED:]
        # Renaming is atomic: a crash leaves the old or the new file, never a partial one.
        written = self._path.with_suffix(".tmp")
        written.write_text(json.dumps(self._ids))
        written.replace(self._path)


def read_entries(content: bytes) -> list[Entry]:
    """Return the first entries of a feed, in its order, usually newest first.

    An entry without an id is identified by its link, else its title, else its text; one that has
    none of them is left out.

    Raises ValueError if the content is not a feed.
    """
    feed = feedparser.parse(content)
    if not feed.version:
        raise ValueError("it is no feed")
    entries = [
        Entry(
            id=str(
                entry.get("id")
                or entry.get("link")
                or entry.get("title")
                or plain(entry.get("summary", ""), LONGEST_SUMMARY)
            ),
            title=plain(entry.get("title", ""), LONGEST_TITLE),
            link=link if (link := str(entry.get("link", ""))).startswith("http") else "",
            text=plain(entry.get("summary", ""), LONGEST_ENTRY),
        )
        for entry in feed.entries[:MOST_ENTRIES]
    ]
    return [entry for entry in entries if entry.id]


def plain(text: str, longest: int) -> str:
    """Return a text without HTML tags, control characters and line breaks, cut to a length."""
    words = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())
    words = "".join(char for char in words if char.isprintable())
    return words if len(words) <= longest else f"{words[: longest - 3].rstrip()}..."

"""A wrong time in the log, of an import or of a clock that was wrong, harms nobody: docs/log.md."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from storage.chat_log.event import PUBLIC, Event
from storage.chat_log.event_table import Query
from tests.kit.web_site import CHANNEL, WebSite, event, web_site

FAR = datetime(2099, 1, 1, tzinfo=UTC)
OTHER = "#other"


async def said_in_2099(site: WebSite) -> None:
    """Log lines of a far future on two channels, and then one of now on each."""
    for channel in (CHANNEL, OTHER):
        await site.said("I am of a far future", time=FAR, nick="marty", channel=channel)
    await site.said("before", time=datetime.now(UTC) - timedelta(hours=2), channel=OTHER)
    await site.said("now", channel=CHANNEL)


async def test_a_line_of_the_far_future_is_not_the_newest_until_then(tmp_path: Path) -> None:
    events = [event("yesterday", time=datetime.now(UTC) - timedelta(days=1))]
    async with web_site(tmp_path, events=events) as site:
        await said_in_2099(site)
        newest = await site.get("/api/messages", limit=2, channel=CHANNEL)
        assert [each["text"] for each in newest["messages"]] == ["yesterday", "now"]
        since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
        found = await site.get("/api/messages", limit=1, since=since)
        assert [each["text"] for each in found["messages"]] == ["now"]
        channels = (await site.get("/api/channels"))["channels"]
        assert [each["channel"] for each in channels] == [f"irc/{CHANNEL}", f"irc/{OTHER}"]
        for query in ({}, {"channel": f"irc/{CHANNEL}"}, {"q": "now or future"}):
            feed = await site.get("/feed.json", **query)
            assert feed["items"][0]["content_text"] == "now"
            atom = (await site.http.get("/feed.atom", params=query)).text
            assert "2099" not in atom
        for path in ("/", "/channel/irc/%23ubuntu", "/stats", "/stats/irc/%23ubuntu"):
            page = (await site.http.get(path, headers={"accept": "text/html"})).text
            assert "2099" not in page, path
            assert "far future" not in page, path


async def test_a_line_of_the_far_future_is_there_for_who_asks_for_it_and_no_model_is_shown_it(
    tmp_path: Path,
) -> None:
    async with web_site(tmp_path) as site:
        await said_in_2099(site)
        for query in ({"since": "2098-01-01"}, {"until": "2100-01-01"}, {"nick": "marty"}):
            listed = await site.get("/api/messages", **query, channel=CHANNEL)
            assert "I am of a far future" in [each["text"] for each in listed["messages"]]
        assert (await site.get("/api/search", q="far future"))["count"] == 2
        assert "2099" in (await site.http.get("/person/marty")).text
        found: list[list[Event]] = await site.log.for_model(Query(scope=PUBLIC, limit=2))
        assert [[each.text for each in events] for events in found] == [["before", "now"]]

"""The log over HTTP, on the real tendril and a log of real lines."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from schemathesis import Case
from schemathesis.checks import not_a_server_error

from storage.chat_log.event import EventType
from tests.kit.openapi import CHECKS, ask_everything, unresolved_references
from tests.kit.web_site import WebSite, event, excerpt, web_site

HERE = "irc/#ubuntu"


async def test_a_log_that_nobody_has_written_yet_gives_empty_answers(site: WebSite) -> None:
    assert await site.get("/api/channels") == {"channels": []}
    assert await site.get("/api/messages") == {"messages": [], "more": False}
    found = await site.get("/api/search", q="frogs")
    assert (found["results"], found["next_cursor"], found["count"]) == ([], None, 0)
    stats = await site.get("/api/stats")
    assert (stats["lines"], stats["days"], stats["top"]) == (0, [], [])


async def test_messages_come_page_by_page_and_narrow_by_nick_kind_and_time(filled: WebSite) -> None:
    seen: list[int] = []
    params: dict[str, Any] = {"channel": HERE, "limit": 60}
    while True:
        answer = await filled.get("/api/messages", **params)
        ids = [message["id"] for message in answer["messages"]]
        assert ids == sorted(ids)
        seen = ids + seen
        if not answer["more"]:
            break
        params["before_id"] = ids[0]
    assert seen == filled.ids
    forward = await filled.get("/api/messages", after_id=filled.ids[9], limit=3)
    assert [message["id"] for message in forward["messages"]] == filled.ids[10:13]
    assert forward["more"]
    joined = await filled.get("/api/messages", type=["JOIN", "NICK"], limit=500)
    assert {message["type"] for message in joined["messages"]} == {"JOIN", "NICK"}
    said = await filled.get("/api/messages", nick="JDUB", type="PRIVMSG", limit=500)
    assert {message["nick"] for message in said["messages"]} == {"jdub"}
    span = {"since": "2004-11-15T03:41:00Z", "until": "2004-11-15T04:44:00+01:00"}
    times = [m["time"] for m in (await filled.get("/api/messages", **span))["messages"]]
    assert times[0][:16] == "2004-11-15T03:41"
    assert times[-1][:16] == "2004-11-15T03:43"
    late = await filled.http.get("/api/messages?since=2004-11-15T05:20:00+01:00")  # "+": a space
    assert late.json()["messages"][0]["time"].startswith("2004-11-15T04:20")


async def test_everything_that_fits_is_streamed_as_lines_of_json(tmp_path: Path) -> None:
    events = [event(f"line {n}", nick="ada" if n % 2 else "bob") for n in range(2500)]
    async with web_site(tmp_path, events=events) as site:
        answer = await site.http.get("/api/messages.jsonl", params={"nick": "ada"})
        assert answer.headers["content-type"] == "application/x-ndjson"
        texts = [json.loads(line)["text"] for line in answer.text.splitlines()]
        assert texts == [f"line {number}" for number in range(1, 2500, 2)]
        last = site.ids[-4]
        some = await site.http.get(f"/api/messages.jsonl?after_id={last}&channel=irc/%23ubuntu")
        assert [json.loads(line)["id"] for line in some.text.splitlines()] == site.ids[-3:]


async def test_a_channel_is_named_with_its_network_or_without(site: WebSite) -> None:
    await site.said("one", network="a", channel="#same")
    await site.said("two", network="b", channel="#same")
    both = await site.get("/api/messages", channel="#same")
    assert [message["text"] for message in both["messages"]] == ["one", "two"]
    one = await site.get("/api/messages", channel="b/#same")
    assert [message["text"] for message in one["messages"]] == ["two"]


async def test_channels_tell_their_size_and_a_message_is_shown_in_its_context(
    filled: WebSite,
) -> None:
    await filled.said("elsewhere", channel="#other", network="other")
    channels = (await filled.get("/api/channels"))["channels"]
    assert [each["channel"] for each in channels] == ["other/#other", HERE]
    assert channels[1]["events"] == 210
    assert channels[1]["last"].startswith("2004-11-15T04:2")
    assert channels[1]["link"] == "/channel/irc/%23ubuntu"
    middle = filled.ids[99]
    answer = await filled.get(f"/api/messages/{middle}/context", before=2, after=3)
    assert [message["id"] for message in answer["before"]] == filled.ids[97:99]
    assert answer["message"]["id"] == middle
    assert [message["id"] for message in answer["after"]] == filled.ids[100:103]
    link = f"/channel/irc/%23ubuntu?at={middle}&time=2004-11-15T03:44:00Z#e{middle}"
    assert answer["message"]["link"] == link


async def test_bad_input_gets_an_error_that_says_what_is_wrong(site: WebSite) -> None:
    for path, status, message in [
        ("/api/messages?limit=0", 422, "limit: .*greater than or equal to 1"),
        ("/api/messages?limit=501", 422, "limit: .*less than or equal to 500"),
        ("/api/messages?since=yesterday", 422, "since: "),
        ("/api/messages?since=2026-01-01T00:00:00", 422, "since: .*timezone.*Z at the end"),
        ("/api/messages?type=SHOUT", 422, "type.*'PRIVMSG'"),
        ("/api/messages?before_id=99999999999999999999", 422, "before_id: "),
        ("/api/search", 422, "q: Field required"),
        ("/api/search?q=...", 422, "q: write at least one word"),
        ("/api/search?q=a&mode=vague", 422, "mode.*'and'"),
        ("/api/search?q=a&hours=0", 422, "hours: "),
        ("/api/messages/999/context", 404, "no event 999"),
        ("/api/stream?after_id=x", 422, "after_id: "),
        ("/api/nothing", 404, "openapi.json"),
    ]:
        answer = await site.http.get(path)
        assert answer.status_code == status
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param"}
        assert re.search(message, error["message"]), error["message"]
    assert (await site.http.put("/api/channels")).headers["allow"] == "GET"


async def test_a_private_conversation_is_nowhere_to_be_seen(site: WebSite) -> None:
    public = await site.said("the secret frogs", channel="#open")
    private = await site.said("the secret password", channel="ada")
    for path in (
        "/api/channels",
        "/api/messages",
        f"/api/messages?after_id={private - 1}",
        "/api/messages?channel=ada",
        "/api/messages?channel=irc/ada",
        f"/api/messages/{public}/context",
        f"/api/messages/{private}/context",
        "/api/search?q=secret",
        "/api/search?q=password&channel=ada",
        "/api/stats",
        "/",
        "/channel/irc/ada",
        f"/channel/irc/%23open?at={private}",
        "/search?q=secret",
        "/search?q=password&channel=irc/ada",
    ):
        answer = await site.http.get(path, headers={"accept": "text/html"})
        assert "the secret password" not in answer.text, path
        assert "/irc/ada" not in answer.text.replace(f"next={path}", ""), path
    assert (await site.get("/api/stats"))["lines"] == 1
    assert (await site.http.get(f"/api/messages/{private}/context")).status_code == 404
    assert (await site.http.get("/channel/irc/ada")).status_code == 404


async def test_the_api_describes_itself_with_examples(site: WebSite) -> None:
    described = await site.get("/openapi.json")
    assert set(described["paths"]) == {
        "/api/channels",
        "/api/messages",
        "/api/messages.jsonl",
        "/api/messages/{id}/context",
        "/api/say",
        "/api/search",
        "/api/stats",
        "/api/stream",
        "/health",
    }
    search = described["paths"]["/api/search"]["get"]["parameters"]
    parameters = {parameter["name"]: parameter for parameter in search}
    assert set(parameters) == {
        *("q", "channel", "nick", "since", "until", "hours", "mode", "order"),
        *("said", "limit", "cursor"),
    }
    assert "irc/#terrarium" in str(parameters["channel"])
    assert unresolved_references(described) == []
    assert (await site.get("/health")) == {"status": "ok"}


async def test_nothing_that_is_published_has_the_host_of_a_ban(site: WebSite) -> None:
    text = "+bb *!~bad@home.example ~bad@1.2.3.4"
    await site.said(text, type=EventType.MODE)
    (message,) = (await site.get("/api/messages"))["messages"]
    assert message["text"] == "+bb *!*@* *!*@*"
    for path in ("/channel/irc/%23ubuntu", "/api/messages.jsonl", "/feed.atom"):
        answer = await site.http.get(path)
        assert answer.status_code == 200
        assert "home.example" not in answer.text
        assert "1.2.3.4" not in answer.text


async def test_the_api_answers_as_it_says_and_never_with_a_500(tmp_path: Path) -> None:
    def send(case: Case[Any], right: bool) -> None:
        case.call_and_validate(checks=[*CHECKS, not_a_server_error])

    tables, endless = {"storage": {"semantic": False}}, "/api/stream"
    async with web_site(tmp_path, events=excerpt(), tables=tables) as site:
        asked = await asyncio.to_thread(ask_everything, site.url, send, endless)
        described = await site.get("/openapi.json")
        assert {*asked, endless} == set(described["paths"])

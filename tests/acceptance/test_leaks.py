"""Three places with a secret each: whatever is asked from wherever, no secret crosses.

What is asked is not listed here but found: every command, every tool that the model is offered,
every page and endpoint. What is added later is asked too.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import httpx2
from fastapi.routing import APIRoute
from mcp import Client
from mcp.shared.exceptions import MCPError

from harnesses.irc.event_handler import Commands
from harnesses.irc.tendril import IrcTendril
from harnesses.web.api import routes as api
from harnesses.web.app import PAGES
from storage.chat_log.event import EVERYTHING, Identity
from storage.chat_log.opt_outs import OptOuts
from storage.db.database import Database
from storage.log import Query
from storage.search.vectors import DIMENSIONS
from tests.kit.command import terrarium
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.irc_tendril import irc_config, irc_tendril
from tests.kit.ircd import embedded_ircd
from tests.kit.mcp_client import mcp_client, text
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.web_site import web_site

RED, GREEN, PRIVATE = "#red", "#green", "bob"
SECRETS = {RED: "crimsonfrog", GREEN: "emeraldnewt", PRIVATE: "whisperedtoad"}
PEOPLE = {RED: "alice", GREEN: "carol", PRIVATE: "bob"}
FREE = {"person_per_minute": 1e6, "channel_per_minute": 1e6, "lines_per_second": 1000.0}
TOKENS = {
    "token": "all-token",
    "tokens": {
        name: {"token": f"{name}-token", "channels": [f"irc/#{name}"]} for name in ("red", "green")
    },
}
READERS = {"red-token": {RED}, "green-token": {GREEN}, "all-token": {RED, GREEN}}
WORDS = [
    "",
    "password",
    "what is the password?",
    *(f"in:{place} password" for place in (RED, GREEN, "irc/bob")),
    *(f"from:{nick}" for nick in PEOPLE.values()),
    *PEOPLE.values(),
    RED,
    GREEN,
]
STREAMS = {"/api/stream", "/tail/{network}/{name:path}"}
ENOUGH = 200  # requests of one page, in all combinations of its parameters


def foreign(place: str | None) -> set[str]:
    """The secrets that nobody may learn who asks from a place, or from none of them."""
    return {secret for other, secret in SECRETS.items() if other != place}


def all_tools(body: dict[str, Any]) -> Answer:
    """A model that calls every tool it is offered, with all that might find something."""
    calls = []
    for tool in body.get("tools", []):
        schema = tool["function"]["parameters"]
        for words, nick, channel in (
            ("password", "", ""),
            ("password", "", GREEN),
            ("", "bob", ""),
            ('"is" from:carol', "carol", ""),
            ("in:#green password", "", ""),
        ):
            given = {"query": words, "nick": nick, "channel": channel, "own": True}
            wanted = given.keys() | set(schema.get("required", ()))
            arguments = {
                key: given.get(key, words) for key in schema.get("properties", ()) if key in wanted
            }
            calls.append((tool["function"]["name"], json.dumps(arguments)))
    return Answer(calls=tuple(dict.fromkeys(calls)))


@asynccontextmanager
async def told_secrets(data: Path) -> AsyncIterator[tuple[IrcTendril, ScriptedOpenAI, IrcClient]]:
    """A bot that has heard each secret in its place, and somebody who has heard none."""
    async with ScriptedOpenAI() as script, embedded_ircd() as ircd:
        script.vector = lambda _: (0.5,) * DIMENSIONS
        irc = {"channels": (RED, GREEN), **FREE}
        agent = {"max_tool_calls": 1_000}
        config = irc_config(data, ircd.port, script.url, irc=irc, agent=agent)
        async with irc_tendril(config) as tendril:
            for place, nick in PEOPLE.items():
                async with irc_client(ircd.port, nick) as person:
                    if place != PRIVATE:
                        await person.join(place)
                    target = "Terra" if place == PRIVATE else place
                    await person.say(target, f"the password is {SECRETS[place]}")
                    if place == PRIVATE:  # which is a question
                        await person.expect("PRIVMSG bob :ok")
                    await person.say(target, ".ping")
                    await person.expect("pong")
            await tendril.services.log.flush()
            assert tendril.log.line_embedding is not None
            assert await tendril.log.line_embedding.embed_missing() > 0
            async with irc_client(ircd.port, "dave") as dave:
                for channel in (RED, GREEN):
                    await dave.join(channel)
                yield tendril, script, dave


async def test_no_command_and_no_tool_tells_what_was_said_elsewhere(tmp_path: Path) -> None:
    commands = Commands(*[cast(Any, None)] * 3)
    # Those of operators are refused, and only one of them in a minute says so.
    names = sorted(commands.known.keys() - commands.of_operators - {"forget", "nolog"})
    found: set[str] = set()
    async with told_secrets(tmp_path) as (_, script, dave):
        for place, target in ((RED, RED), (GREEN, GREEN), (None, "Terra")):
            if place is None:
                await dave.send(f"PART {GREEN}")
                await dave.settle()
            for name, words in itertools.product(names, WORDS):
                if place and commands.takes_no_words(name) and " " in words:
                    continue  # on a channel this is prose
                asks = name in ("terrarium", "ask") and bool(words)
                before, begun = len(script.requests), len(dave.lines)
                if asks:
                    script.reply(all_tools).say("That is all.")
                await dave.say(target, f".{name} {words}".strip())
                ends = "That is all" if asks else r"(PRIVMSG|NOTICE)"
                await dave.expect(rf":Terra!\S+ .*{ends}")
                told = "\n".join(dave.lines[begun:]) + json.dumps(script.requests[before:])
                # In private the tools read what is said on the channels that one is on.
                reads = asks or name == "seen"
                hidden = foreign(RED if place is None and reads else place)
                assert not [secret for secret in hidden if secret in told], (place, name)
                found.update(secret for secret in SECRETS.values() if secret in told)
        for tool in ("search_log", "read_log"):  # they were asked well
            results = [
                message["content"]
                for request in script.requests
                for message in request.get("messages", ())
                if str(message.get("content")).startswith(f'<tool_result tool="{tool}">')
            ]
            assert [SECRETS[RED] in text for text in results].count(True), tool
    assert found == {SECRETS[RED], SECRETS[GREEN]}  # each place knows its own


def addresses(ids: list[int]) -> Iterator[str]:
    """Every page and endpoint that can be read, with all that might find something."""
    routes = [
        route
        for router in (api.router, *PAGES)
        for route in router.routes
        if isinstance(route, APIRoute) and "GET" in (route.methods or ())
    ]
    values = {
        "id": [str(number) for number in ids],
        "event_id": [str(number) for number in ids],
        "network": ["irc"],
        "name": ["%23red", "%23green", "bob"],
        "nick": list(PEOPLE.values()),
        "token": ["x"],
    }
    queries = [
        "",
        *("q=password", "q=is&mode=or", "q=pass*&order=rank", "q=word&mode=semantic&limit=9"),
        *("q=password&mode=meaning", "day=2026-01-01&days=3", "after_id=0", "limit=500"),
        *(f"q=password&channel=irc/{name}" for name in ("%23red", "%23green", "bob")),
        *(f"channel=irc/{name}" for name in ("%23red", "%23green", "bob")),
        *(f"nick={nick}&q=password" for nick in PEOPLE.values()),
        *("q=in:bob+password", "q=in:%23green+password", "q=from:bob", "at=1"),
    ]
    for route in routes:
        if route.path in STREAMS:
            continue
        names = re.findall(r"{(\w+)", route.path)
        filled = [values[name] for name in names]
        chosen = itertools.product(itertools.product(*filled), queries)
        for parts, query in itertools.islice(chosen, ENOUGH):
            path = route.path
            for part in parts:
                path = re.sub(r"{[^}]*}", part, path, count=1)
            yield f"{path}?{query}"


async def test_no_page_and_no_endpoint_tells_what_a_token_may_not_read(tmp_path: Path) -> None:
    async with told_secrets(tmp_path) as (tendril, script, _):
        events = await tendril.services.log.find(Query(scope=EVERYTHING, limit=1000))
        ids = [event.id for event in events if event.text.startswith("the password")]
        assert len(ids) == 3
        async with web_site(tmp_path, settings=TOKENS, agent_url=script.url) as site:
            for token, places in (READERS | {"": set()}).items():
                hidden = {SECRETS[place] for place in SECRETS if place not in places}
                shown = {"authorization": f"Bearer {token}"} if token else {}
                site.http.headers = httpx2.Headers(shown)
                site.http.cookies.clear()  # another browser: its chat has a memory of its own
                seen = ""
                for address in addresses(ids):
                    body = (await site.http.get(address, follow_redirects=True)).text
                    assert not [secret for secret in hidden if secret in body], (token, address)
                    seen += body
                for place in sorted(places):
                    await site.said("the end", channel=place)
                    seen += await streamed(site.http, "/api/stream?after_id=1")
                    seen += await streamed(site.http, f"/tail/irc/{quote(place)}?after_id=1")
                for place in {RED, GREEN, PRIVATE} - places:
                    async with site.http.stream("GET", f"/tail/irc/{quote(place)}") as answer:
                        assert answer.status_code in (303, 401, 404), (token, place)
                if token:
                    seen += await chatted(site.http, script)
                assert not [secret for secret in hidden if secret in seen], token
                assert {place for place in SECRETS if SECRETS[place] in seen} == places


async def test_no_mcp_tool_and_no_resource_tells_what_a_token_may_not_read(tmp_path: Path) -> None:
    async with told_secrets(tmp_path) as (tendril, script, _):
        events = await tendril.services.log.find(Query(scope=EVERYTHING, limit=1000))
        ids = [event.id for event in events]
        async with web_site(tmp_path, settings=TOKENS, agent_url=script.url) as site:
            for token, places in READERS.items():
                async with mcp_client(site.url, token) as client:
                    seen = await told_by_mcp(client, ids)
                    begun = len(script.requests)
                    script.reply(all_tools).say("That is all.")
                    seen += text(await client.call_tool("ask", {"question": "which password?"}))
                    seen += json.dumps(script.requests[begun:])
                found = {place for place, secret in SECRETS.items() if secret in seen}
                assert found == places, token
            async with Database.open(tmp_path / "irc.db") as database:
                for person in {Identity.from_event(each) for each in events}:
                    if person.nick == "alice":
                        await OptOuts(database).add("irc", person)
            async with mcp_client(site.url, "all-token") as client:
                seen = await told_by_mcp(client, ids)
                assert SECRETS[RED] not in seen  # alice wants to be shown to no model
                assert "<alice>" not in seen
                assert '"nick": "alice"' not in seen
                assert SECRETS[GREEN] in seen


async def told_by_mcp(client: Client, ids: list[int]) -> str:
    """What all tools but `ask` and all resources tell, with all that might find something."""
    seen = ""
    for tool in (await client.list_tools()).tools:
        if tool.name == "ask":
            continue
        known = tool.input_schema["properties"]
        places = ("", RED, GREEN, "irc/bob") if "channel" in known else ("",)
        for words, channel in itertools.product(WORDS if "query" in known else ("",), places):
            given = {"query": words or "password", "channel": channel}
            arguments = {key: value for key, value in given.items() if key in known}
            seen += text(await client.call_tool(tool.name, arguments))
    resources = [each.uri for each in (await client.list_resources()).resources]
    today = resources[0].rpartition("/")[2]
    hidden = ("%23red", "%23green", "bob", "~bob", "bob%21bob%40127.0.0.1")
    resources += [f"terrarium://day/irc/{place}/{today}" for place in hidden]
    for uri in (*resources, *(f"terrarium://line/{number}" for number in ids)):
        with suppress(MCPError):
            seen += text(await client.read_resource(uri))
    return seen


async def streamed(http: httpx2.AsyncClient, address: str) -> str:
    """What a stream tells, from the beginning to the last line that was said."""
    text = ""
    async with http.stream("GET", address) as answer:
        assert answer.status_code == 200
        async for piece in answer.aiter_text():
            text += piece
            if "the end" in text:
                break
    return text


async def chatted(http: httpx2.AsyncClient, script: ScriptedOpenAI) -> str:
    """What the model is sent, and answers, when it is asked on the chat page."""
    before = len(script.requests)
    script.reply(all_tools).say("That is all.")
    answer = await http.post("/chat", json={"text": "what is the password?"})
    assert "That is all" in answer.text
    return answer.text + json.dumps(script.requests[before:])


async def test_no_command_line_tells_what_was_said_in_private(tmp_path: Path) -> None:
    async with told_secrets(tmp_path):
        pass
    told = ""
    for command in (
        ["search", "password"],
        ["search", "password", "--channel", "irc/bob"],
        ["stats"],
        ["stats", "--channel", "bob"],
        ["export"],
        ["export", "--channel", "irc/bob"],
    ):
        done = await terrarium("logs", *command, "--data", ".", cwd=tmp_path)
        told += done.out + done.err
    assert SECRETS[PRIVATE] not in told
    assert SECRETS[RED] in told

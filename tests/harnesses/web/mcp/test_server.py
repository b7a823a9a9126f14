"""The official MCP client at the web tendril: every tool and resource, and who may use them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference, TextContent

from harnesses.web.app_state import TOO_FAST
from harnesses.web.tendril import WebTendril
from llm.tools.toolbox import tool
from tests.kit.mcp_client import mcp_client, text, value
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.web_site import NOBODY, WebSite, event, excerpt, web_site

TOOLS = {"search_log", "read_log", "channels", "who", "ask"}
MODES = ("auto", "legacy")  # without a handshake, as since 2026-07-28, and with the one before


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_lists_and_calls_every_tool(tmp_path: Path, mode: str) -> None:
    async with (
        ScriptedOpenAI() as script,
        web_site(tmp_path, events=excerpt(), agent_url=script.url) as site,
        mcp_client(site.url, mode=mode) as client,
    ):
        listed = (await client.list_tools()).tools
        assert {each.name for each in listed} == TOOLS
        assert all(each.description and each.input_schema["type"] == "object" for each in listed)
        assert all(each.title and each.output_schema for each in listed)

        (channel,) = value(await client.call_tool("channels"))["channels"]
        assert channel["channel"] == "irc/#ubuntu"
        assert channel["link"] == f"{site.url}/channel/irc/%23ubuntu"

        said = await site.said("the frogs are awake", nick="ada")
        found = value(await client.call_tool("search_log", {"query": "frogs awake"}))
        assert [(line["id"], line["nick"]) for line in found["lines"]] == [(said, "ada")]
        assert found["lines"][0]["link"].startswith(f"{site.url}/channel/irc/%23ubuntu?at={said}&")

        read = value(await client.call_tool("read_log", {"channel": "#ubuntu", "limit": 3}))
        assert read["more"]
        assert [line["text"] for line in read["lines"]][-1] == "the frogs are awake"

        people = value(await client.call_tool("who", {"channel": "irc/#ubuntu", "hours": 1}))
        assert [(each["nick"], each["lines"]) for each in people["people"]] == [("ada", 1)]

        script.say("They are.")
        first = value(await client.call_tool("ask", {"question": "are the frogs awake?"}))
        assert first["answer"] == "They are."
        script.say("Since nine.")
        again = {"question": "since when?", "conversation": first["conversation"]}
        assert value(await client.call_tool("ask", again))["answer"] == "Since nine."
        assert "are the frogs awake?" in str(script.requests[-1])


async def test_a_search_goes_on_where_it_ended_and_the_log_is_read_on_from_a_line_or_a_time(
    tmp_path: Path,
) -> None:
    begin = datetime(2026, 3, 1, 12, tzinfo=UTC)
    lines = [event(f"frog {number}", time=begin + timedelta(minutes=number)) for number in range(6)]
    async with web_site(tmp_path, events=lines) as site, mcp_client(site.url) as client:
        asked: dict[str, Any] = {"query": "frog", "limit": 4}
        first = value(await client.call_tool("search_log", asked))
        asked["cursor"] = first["next_cursor"]
        rest = value(await client.call_tool("search_log", asked))
        texts = [line["text"] for line in (*first["lines"], *rest["lines"])]
        assert texts == [f"frog {number}" for number in (5, 4, 3, 2, 1, 0)]

        async def read(**arguments: Any) -> list[str]:
            found = value(await client.call_tool("read_log", {"limit": 2, **arguments}))
            return [line["text"] for line in found["lines"]]

        assert await read() == ["frog 4", "frog 5"]
        assert await read(before_id=site.ids[4]) == ["frog 2", "frog 3"]
        assert await read(after_id=site.ids[1]) == ["frog 2", "frog 3"]
        assert await read(since="2026-03-01T12:01:00Z") == ["frog 1", "frog 2"]
        assert await read(since="2026-03-01", until="2026-03-01T12:01:00Z") == ["frog 0"]


async def test_days_and_lines_are_resources(tmp_path: Path) -> None:
    async with web_site(tmp_path, events=excerpt()) as site, mcp_client(site.url) as client:
        (day,) = (await client.list_resources()).resources
        assert day.uri == "terrarium://day/irc/%23ubuntu/2004-11-15"
        whole = text(await client.read_resource(day.uri))
        assert len(whole.splitlines()) == len(site.ids)
        around = text(await client.read_resource(f"terrarium://line/{site.ids[50]}"))
        assert around.splitlines() == whole.splitlines()[40:61]
        templates = (await client.list_resource_templates()).resource_templates
        assert [each.name for each in templates] == ["day", "line"]
        for missing in ("terrarium://line/999999", "terrarium://day/irc/%23ubuntu/2004-13-01", "x"):
            with pytest.raises(MCPError, match="no such resource"):
                await client.read_resource(missing)


async def test_a_wrong_argument_or_a_failure_is_a_result_in_plain_words(tmp_path: Path) -> None:
    async with web_site(tmp_path, events=[event("a frog")]) as site, mcp_client(site.url) as client:
        for name, arguments, words in (
            ("search_log", {}, "query: Field required"),
            ("search_log", {"query": "-"}, "at least one word"),
            ("search_log", {"query": "frog", "cursor": "x"}, "cursor"),
            ("search_log", {"query": "frog", "limit": 10_000}, "limit"),
            ("read_log", {"since": "yesterday"}, "since"),
            ("read_log", {"chanel": "#ubuntu"}, "chanel"),
            ("read_log", {"channel": "#ubunut"}, "#ubunut; there is irc/#ubuntu"),
            ("search_log", {"query": "frog", "channel": "irc/#nope"}, "irc/#nope; there is"),
            ("who", {"channel": "other/#ubuntu"}, "other/#ubuntu; there is"),
            ("ask", {"question": "and?", "conversation": "mine"}, "conversation"),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error
            assert words in text(result)
        failed = await client.call_tool("ask", {"question": "are you there?"})  # no model is
        assert failed.is_error
        assert text(failed)
        assert "Traceback" not in text(failed)
        with pytest.raises(MCPError, match="no such tool"):
            await client.call_tool("format_disk")


@pytest.mark.parametrize("mode", MODES)
async def test_a_question_that_its_client_cancels_ends_at_the_model(
    script: ScriptedOpenAI, chat: WebSite, mode: str
) -> None:
    asking_client = partial(mcp_client, chat.url, mode=mode)
    async with asking_client() as client, asking_client() as other:
        script.hang("The").hang("A")
        asking = [
            asyncio.create_task(each.call_tool("ask", {"question": f"who is {name}?"}))
            for each, name in ((client, "ada"), (other, "bob"))
        ]
        await script.arrived(2)
        asking[0].cancel()
        await script.client_gone()
        assert not asking[1].done()
        script.release()
        assert not (await asking[1]).is_error
        script.say("Still here.")
        again = await client.call_tool("ask", {"question": "and now?"})
        assert value(again)["answer"] == "Still here."


@pytest.mark.parametrize("mode", MODES)
async def test_a_long_call_reports_its_progress(
    script: ScriptedOpenAI, chat: WebSite, mode: str
) -> None:
    async with mcp_client(chat.url, mode=mode) as client:
        script.hang("Ada.")
        seen: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            seen.append(progress)
            script.release()

        asked = {"question": "who is there?"}
        answer = await client.call_tool("ask", asked, progress_callback=on_progress)
        assert value(answer)["answer"] == "Ada."
        assert seen[0] == 5


@pytest.mark.parametrize("mode", MODES)
async def test_prompts_are_offered_and_their_arguments_completed(tmp_path: Path, mode: str) -> None:
    settings = {
        "token": "whole-token",
        "tokens": {"guests": {"token": "guest-token", "channels": ["irc/#pond"]}},
    }
    events = [*excerpt(), event("a frog", channel="#pond")]
    async with (
        web_site(tmp_path, events=events, settings=settings) as site,
        mcp_client(site.url, "whole-token", mode=mode) as client,
        mcp_client(site.url, "guest-token", mode=mode) as guest,
    ):
        prompts = {each.name: each for each in (await client.list_prompts()).prompts}
        assert set(prompts) == {"catch_up", "decisions", "digest"}
        given = {"channel": "irc/#ubuntu", "date": "2004-11-15"}
        (message,) = (await client.get_prompt("digest", given)).messages
        assert isinstance(message.content, TextContent)
        assert "said on irc/#ubuntu on 2004-11-15" in message.content.text
        for name, words in (("burn", "no such prompt"), ("digest", "channel is missing")):
            with pytest.raises(MCPError, match=words):
                await client.get_prompt(name, {})

        prompt = PromptReference(name="digest")
        day = ResourceTemplateReference(uri="terrarium://day/{network}/{channel}/{date}")
        for asker, ref, name, typed, known, values in (
            (client, prompt, "channel", "#UBU", {}, ["irc/#ubuntu"]),
            (guest, prompt, "channel", "", {}, ["irc/#pond"]),
            (client, prompt, "date", "2004", {"channel": "#ubuntu"}, ["2004-11-15"]),
            (guest, prompt, "date", "2004", {"channel": "#ubuntu"}, []),
            (client, day, "channel", "ub", {}, ["#ubuntu"]),
            (client, day, "network", "", {}, ["irc"]),
            (client, prompt, "topic", "f", {}, []),
        ):
            found = await asker.complete(ref, {"name": name, "value": typed}, known)
            assert found.completion.values == values, (name, typed)


async def test_questions_spend_from_the_same_bucket_as_the_chat_box(
    script: ScriptedOpenAI, chat: WebSite
) -> None:
    async with mcp_client(chat.url) as client:
        answers = []
        for _ in range(8):  # faster than they are answered: five at once are allowed
            script.say("A frog.")
            answers.append(await client.call_tool("ask", {"question": "who is there?"}))
        assert not answers[0].is_error
        assert answers[-1].is_error
        assert text(answers[-1]) == TOO_FAST
        refused = await chat.http.post("/chat", json={"text": "and who else?"})
        assert refused.status_code == 429
        assert value(await client.call_tool("channels"))["channels"] == []  # the log costs nothing


async def test_who_has_shown_no_token_reads_public_channels_and_asks_nothing(
    tmp_path: Path,
) -> None:
    events = [event("open to all"), event("for us alone", channel="#inside")]
    settings = {"token": "whole-token", "public": ["irc/#ubuntu"]}
    async with web_site(tmp_path, events=events, settings=settings) as site:
        async with mcp_client(site.url) as guest:
            assert {each.name for each in (await guest.list_tools()).tools} == TOOLS - {"ask"}
            found = value(await guest.call_tool("read_log"))
            assert [line["text"] for line in found["lines"]] == ["open to all"]
            with pytest.raises(MCPError):
                await guest.call_tool("ask", {"question": "what is inside?"})
        async with mcp_client(site.url, "whole-token") as owner:
            found = value(await owner.call_tool("read_log"))
            assert len(found["lines"]) == 2


class Pond(WebTendril):
    """A web tendril with tools of its own."""

    @tool(reads=True, mcp=True)
    async def count_frogs(self, asleep: bool = False) -> int:
        """Count the frogs."""
        return 2 if asleep else 40

    @tool(mcp=True, needs="drain")
    async def drain(self) -> str:
        """Drain the pond."""
        return "drained"

    @tool(reads=True)
    async def secret(self) -> str:
        """Tell our own model a secret."""
        return "the heron comes at nine"


async def test_tools_of_the_tendril_that_are_marked_are_offered_without_any_right(
    tmp_path: Path,
) -> None:
    persona = tmp_path / "persona.md"
    persona.write_text("You are a pond.")
    agent = {"api_url": NOBODY, "personas": {"web": str(persona)}}
    async with (
        web_site(tmp_path, kind=Pond, tables={"agent": agent}) as site,
        mcp_client(site.url) as client,
    ):
        names = {each.name for each in (await client.list_tools()).tools}
        assert names == TOOLS | {"count_frogs", "drain"}
        counted = await client.call_tool("count_frogs", {"asleep": True})
        assert text(counted) == "2"
        refused = await client.call_tool("drain")
        assert refused.is_error
        assert "drained" not in text(refused)
        with pytest.raises(MCPError, match="no such tool"):
            await client.call_tool("secret")

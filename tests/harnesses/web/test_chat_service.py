"""The chat box over HTTP, with a model that says exactly what the test wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from harnesses.web.auth.middleware import MAX_BODY_BYTES
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.web_site import WebSite, web_site


async def chat_page(site: WebSite, conversation: str) -> str:
    async with site.client(cookie=f"terrarium_chat={conversation}") as http:
        return (await http.get("/chat")).text


async def test_an_answer_comes_in_pieces_and_then_formatted_or_is_one_human_sentence(
    script: ScriptedOpenAI, chat: WebSite
) -> None:
    script.say("Two **frogs**.")
    *pieces, last = await chat.ask("what is new?")
    assert "".join(piece["text"] for piece in pieces) == "Two **frogs**."
    assert len(pieces) > 1
    assert last == {"html": "<p>Two <strong>frogs</strong>.</p>", "ok": True, "turn": 1}
    question = script.requests[0]["messages"][-1]
    assert question["role"] == "user"
    assert question["content"].endswith("what is new?")
    script.fail(400, "no such model: /secret/path")
    (last,) = await chat.ask("hello?")
    assert last["ok"] is False
    assert "/secret/path" not in last["html"]
    assert "hello?" not in (await chat.http.get("/chat")).text


async def test_a_reminder_is_put_into_the_conversation_of_whoever_wanted_it(chat: WebSite) -> None:
    (confirmed,) = await chat.ask(".remind in 1 second pour the tea")
    assert "I will remind you on" in confirmed["html"]
    async with asyncio.timeout(PATIENCE):
        while "reminder: pour the tea" not in (await chat.http.get("/chat")).text:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert "pour the tea" not in await chat_page(chat, "0" * 32)


async def test_a_body_too_long_to_be_parsed_or_without_words_is_refused(site: WebSite) -> None:
    long = b'{"text": "' + b"x" * MAX_BODY_BYTES + b'"}'

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(long), 2**16):
            yield long[start : start + 2**16]

    for content in (long, pieces()):  # with its length, and without
        headers = {"content-type": "application/json"}
        answer = await site.http.post("/chat", content=content, headers=headers)
        assert answer.status_code == 413
        error = answer.json()["error"]
        assert error["type"] == "request_entity_too_large"
        assert f"longer than {MAX_BODY_BYTES} bytes" in error["message"]
    for body, message in (  # short enough to be read
        ({"text": "   "}, "at least 1 character"),
        ({"text": "a" * 4001}, "at most 4000 characters"),
        ({}, "text: Field required"),
    ):
        answer = await site.http.post("/chat", json=body)
        assert answer.status_code == 422
        assert message in answer.json()["error"]["message"]


async def test_each_browser_has_a_conversation_of_its_own_that_can_be_forgotten(
    script: ScriptedOpenAI, chat: WebSite
) -> None:
    async with chat.client() as other:
        await chat.ask("I keep newts")
        await chat.ask("what do I keep?")
        await other.post("/chat", json={"text": "and what do I keep?"})
        assert "I keep newts" in str(script.requests[1]["messages"])
        assert "newts" not in str(script.requests[2]["messages"])
        assert "newts" not in (await other.get("/chat")).text
    await chat.ask("I keep newts")
    answer = await chat.http.post("/chat/0/forget")
    assert (answer.status_code, answer.headers["location"]) == (303, "/chat/new")
    assert "newts" not in await chat_page(chat, chat.http.cookies["terrarium_chat"])


async def test_forget_me_removes_all_conversations_and_facts_of_the_person_and_no_others(
    chat: WebSite,
) -> None:
    async with chat.client() as other:
        await other.post("/chat", json={"text": "I keep toads"})
        await chat.ask(".remember tea oolong")
        for name in ("0", "b"):
            await chat.ask("I keep newts", conversation=name)
        assert "oolong" in (await chat.http.get("/memory.json")).text
        assert "oolong" not in (await other.get("/memory.json")).text
        *_, told = await chat.ask(".forget me")
        assert "2 turns" in told["html"]
        assert "oolong" not in (await chat.http.get("/memory.json")).text
        for path in ("/chat/0", "/chat/b"):
            assert "newts" not in (await chat.http.get(path)).text
        assert "toads" in (await other.get("/chat")).text


async def test_a_turn_is_replaced_only_by_one_that_is_answered(
    script: ScriptedOpenAI, chat: WebSite
) -> None:
    script.say("Noted.").say("Moss.")
    for text in ("I keep newts", "what do they eat?"):
        await chat.ask(text)
    script.fail(400, "no")
    body: dict[str, Any] = {"text": "what do they drink?", "replaces": 2}
    assert not (await chat.ask(**body))[-1]["ok"]
    script.hang("Perhaps they")
    async with chat.http.stream("POST", "/chat", json=body) as answer:
        async with asyncio.timeout(PATIENCE):
            await anext(answer.aiter_lines())
    await script.client_gone()
    kept = (await chat.http.get("/chat")).text
    assert "what do they eat?" in kept
    assert "Moss." in kept
    script.say("Dew.")
    assert (await chat.ask(**body))[-1]["turn"] == 3
    shown = str(script.requests[-1]["messages"])
    assert "I keep newts" in shown
    assert "what do they eat?" not in shown
    kept = (await chat.http.get("/chat")).text
    assert "Dew." in kept
    assert "Moss." not in kept


async def test_a_conversation_is_there_again_after_a_restart(
    script: ScriptedOpenAI, tmp_path: Path
) -> None:
    async with web_site(tmp_path, agent_url=script.url) as site:
        script.say("Newts like `moss`.")
        await site.ask("what do <newts> like?")
        conversation = site.http.cookies["terrarium_chat"]
    async with web_site(tmp_path, agent_url=script.url) as site:
        page = await chat_page(site, conversation)
        assert "what do &lt;newts&gt; like?" in page
        assert "<code>moss</code>" in page


async def test_the_model_can_search_the_public_logs_and_no_private_one(
    script: ScriptedOpenAI, chat: WebSite
) -> None:
    await chat.said("k3b burns well", nick="djtansey")
    await chat.said("k3b is my secret", channel="ada")
    script.call("search_log", {"query": "k3b"}).say("Many spoke of it.")
    assert (await chat.ask("who spoke of k3b?"))[-1]["ok"]
    result = script.requests[1]["messages"][-1]
    assert result["role"] == "tool"
    assert "djtansey" in result["content"]
    assert "my secret" not in result["content"]


async def test_a_question_about_the_log_is_answered_with_lines_that_the_asker_may_read(
    script: ScriptedOpenAI, chat: WebSite
) -> None:
    script.card = {"parameters": 135_000_000}
    script.reads = lambda _: "local"
    await chat.said("the frog pond is behind the shed", channel="#frogs")
    await chat.said("the newt pond is in the cellar", channel="ada")
    await chat.said("<b>the toad pond</b> froze ``` over", nick="<i>bob", channel="#toads")
    for question, words, nick in (
        ("where is the frog pond?", "the frog pond is behind the shed", "ada"),
        ("who said toad pond?", "&lt;b&gt;the toad pond&lt;/b&gt; froze", "&lt;i&gt;bob"),
    ):
        (answer,) = await chat.ask(question)
        for html in (answer["html"], (await chat.http.get("/chat")).text):
            card = html.partition('aria-label="Sources"')[2].rpartition(words)
            assert f">{nick}</a>" in card[0]
            assert 'href="/channel/irc/%23' in card[0]
            assert html.count(words) == 1  # and no longer a quote beside it
    assert "cellar" not in str(await chat.ask("where is the newt pond?"))
    assert "cellar" not in str(script.requests)


async def test_stopping_the_tendril_ends_an_answer_that_hangs(
    script: ScriptedOpenAI, tmp_path: Path
) -> None:
    async def ask_and_be_cut(site: WebSite) -> None:
        async with site.client() as http:
            with pytest.raises(httpx2.RemoteProtocolError):
                await http.post("/chat", json={"text": "a story"})

    async with asyncio.timeout(PATIENCE), web_site(tmp_path, agent_url=script.url) as site:
        script.hang("Once")
        asking = asyncio.create_task(ask_and_be_cut(site))
        await script.arrived()
    await asking
    await script.client_gone()

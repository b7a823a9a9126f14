"""Reprs are as docs/debugging.md shows them: short and without private data."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import SecretStr

from agent_server.admission.queue import AdmissionQueue
from agent_server.admission.scheduler import QueuedRequest, Scheduler
from harnesses.core.tendril.turn import ConversationQueue, TurnRequest
from llm.client.client import AgentClient
from llm.client.settings import AgentSettings
from llm.messages.message import Question
from llm.prompt.log_window import LogWindow
from storage.chat_log.event import Place
from storage.db.database import Database
from storage.log import ChatLog
from tests.harnesses.core.tendril.test_base import small
from tests.kit.irc_network import Ears, joined
from tests.kit.ircd import embedded_ircd
from tests.kit.openai_script import ScriptedOpenAI

PAGE = (Path(__file__).parents[2] / "docs" / "debugging.md").read_text(encoding="utf-8")


def shown(thing: object) -> str:
    """Return the repr of a thing; assert that the page shows it, apart from the port."""
    text = repr(thing)
    assert re.sub(r":\d{4,}", ":8080", text) in PAGE
    return text


async def test_a_request_to_a_tendril_is_shown_without_its_words(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        shown(tendril)
        shown(tendril.client)
    request = TurnRequest(conversation="libera/#frogs/ada", who="ada", text="which is the PIN?")
    assert "PIN" not in shown(request)
    private = TurnRequest(conversation="libera/ada", who="ada", text="my PIN is 1234", private=True)
    assert "ada" not in shown(private)


async def test_a_client_is_shown_without_its_key() -> None:
    url, key = "http://me:hush@127.0.0.1:8080/v1", SecretStr("hush")
    async with AgentClient.open(AgentSettings(api_url=url, api_key=key)) as client:
        assert "hush" not in repr(client)
        assert "http://127.0.0.1:8080" in repr(client)


async def test_queues_are_shown_with_their_lengths() -> None:
    queue = ConversationQueue()
    assert repr(queue) == "<ConversationQueue idle, 0 waiting>"
    queue.place(Question("ada", "secret?"), joins=False)
    shown(queue)
    admission = AdmissionQueue(Scheduler(2), interactive=1, background=1)
    await admission.acquire(QueuedRequest("irc", 1))
    shown(admission)


async def test_the_log_and_a_window_on_it_are_shown_without_lines(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "irc.db") as database, ChatLog.open(database) as log:
        shown(log)
        shown(
            LogWindow(log=log, place=Place("libera", "#frogs"), anchor=1_764_000_000_000, last=20)
        )


async def test_a_connection_is_shown_with_its_network_and_nick() -> None:
    ears = Ears()
    async with embedded_ircd() as ircd, joined(ircd.port, ears, nick="Terra") as network:
        shown(network)
        shown(network._connection)

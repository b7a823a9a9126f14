"""Tests of the XMPP tendril with a real XMPP server, a real client and a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from slixmpp import JID, ClientXMPP, Message
from terrarium_xmpp.tendril import XmppTendril

from terrarium import Config
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE, until
from tests.kit.prosody import PASSWORD, Prosody, prosody
from tests.kit.room_tendril import ready

pytestmark = [pytest.mark.server, pytest.mark.process]

ROOM = "pond@rooms.localhost"


class Person:
    """A person in the room; `heard` has all messages as "<nick> text", corrections as "<nick*>"."""

    def __init__(self, name: str) -> None:
        self.heard: asyncio.Queue[str] = asyncio.Queue()
        self.client = ClientXMPP(f"{name}@localhost", PASSWORD)
        self.client.register_plugin("xep_0045")
        self.client.enable_direct_tls = self.client.enable_starttls = False
        self.client.enable_plaintext = True
        self.client.plugin["feature_mechanisms"].unencrypted_scram = True
        self.client.add_event_handler("groupchat_message", self._hear)

    def _hear(self, message: Message) -> None:
        # Not by the plugin of corrections: registered here, it would be for the tendril too.
        is_correction = message.xml.find("{urn:xmpp:message-correct:0}replace") is not None
        mark = "*" if is_correction else ""
        self.heard.put_nowait(f"<{message['mucnick']}{mark}> {message['body']}")

    def say(self, text: str) -> None:
        """Send a message to the room."""
        self.client.send_message(mto=ROOM, mbody=text, mtype="groupchat")

    async def hears(self, text: str) -> None:
        """Wait for a message. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            while await self.heard.get() != text:
                pass


@asynccontextmanager
async def person(server: Prosody, name: str) -> AsyncIterator[Person]:
    """Connect a person and have them join the room."""
    them = Person(name)
    started = asyncio.get_running_loop().create_future()
    them.client.add_event_handler("session_start", started.set_result)
    them.client.connect(server.host, server.port)
    try:
        async with asyncio.timeout(PATIENCE):
            await started
            them.client.send_presence()
            await them.client.plugin["xep_0045"].join_muc_wait(JID(ROOM), name, maxstanzas=0)
        yield them
    finally:
        them.client.abort()


@asynccontextmanager
async def in_the_room(
    folder: Path, script: ScriptedOpenAI, *, public_jids: bool
) -> AsyncIterator[tuple[XmppTendril, Person]]:
    """Run a server, ada and the tendril, all in one room."""
    server_folder, data = folder / "prosody", folder / "data"
    server_folder.mkdir()
    async with prosody(server_folder, "terra", "ada", public_jids=public_jids) as server:
        tables = {
            "agent": {"api_url": script.url, "timezone": "UTC"},
            "xmpp": {
                "jid": "terra@localhost",
                "password": PASSWORD,
                "room": ROOM,
                "host": server.host,
                "port": server.port,
                "tls": False,
            },
        }
        async with (
            person(server, "ada") as ada,  # joins first: creates the room and owns it
            ready(XmppTendril(Config(tables, None, data))) as tendril,
        ):
            yield tendril, ada


async def test_a_question_is_answered_and_logged_with_its_account(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        in_the_room(tmp_path, script, public_jids=True) as (tendril, ada),
    ):
        script.say("At six.")
        ada.say("the pump starts at six")
        ada.say("Terra: when does the pump start?")
        await ada.hears("<Terra> ada: At six.")
        await tendril.log.chat_log.flush()
        lines = await tendril.log.recent("#pond")
        assert [(line.nick, line.text) for line in lines] == [
            ("ada", "the pump starts at six"),
            ("ada", "Terra: when does the pump start?"),
            ("Terra", "At six."),
        ]
        assert {line.account for line in lines if line.nick == "ada"} == {"ada@localhost"}
        ada.say(".who")
        await ada.hears("<Terra> ada: 2 here: Terra, ada")


async def test_who_comes_and_goes_is_logged_with_their_account(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        in_the_room(tmp_path, script, public_jids=True) as (tendril, ada),
    ):
        room = ada.client.plugin["xep_0045"]
        room.leave_muc(JID(ROOM), "ada")
        await until(lambda: tendril.members(tendril.log.place("#pond")) == ["Terra"])
        await room.join_muc_wait(JID(ROOM), "ada", maxstanzas=0)
        ada.say(".ping")
        await ada.hears("<Terra> ada: pong")
        await tendril.log.chat_log.flush()
        lines = await tendril.log.recent("#pond")
        assert [(line.type, line.account) for line in lines[:2]] == [
            ("PART", "ada@localhost"),
            ("JOIN", "ada@localhost"),
        ]


async def test_a_slow_answer_grows_by_corrections(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        in_the_room(tmp_path, script, public_jids=True) as (_, ada),
    ):
        script.card = {"parameters": 8_000_000_000}
        script.hang("At six.")
        ada.say("Terra: when does the pump start?")
        await ada.hears("<Terra> ada: At six.")
        script.release()
        await ada.hears("<Terra*> ada: At six.")


async def test_people_whose_accounts_are_hidden_are_known_by_the_ids_of_the_room(
    tmp_path: Path,
) -> None:
    async with (
        ScriptedOpenAI() as script,
        in_the_room(tmp_path, script, public_jids=False) as (tendril, ada),
    ):
        ada.say("Terra: hello")
        await ada.hears("<Terra> ada: ok")
        await tendril.log.chat_log.flush()
        (line, _) = await tendril.log.recent("#pond")
        assert (line.account, line.host) == (None, ROOM)
        assert len(line.user) > 20


async def test_it_says_what_others_want_said(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        in_the_room(tmp_path, script, public_jids=True) as (tendril, ada),
    ):
        await tendril.outbox.say("xmpp", "#pond", "the tea is ready", key="tea")
        await ada.hears("<Terra> the tea is ready")
        assert not await tendril.say(tendril.log.place("#elsewhere"), "hello")


async def test_without_an_account_the_owner_is_told(tmp_path: Path) -> None:
    tendril = XmppTendril(Config({}, None, tmp_path))
    running = asyncio.create_task(tendril.run())
    async with asyncio.timeout(PATIENCE):
        while "set jid and room" not in status(tmp_path):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def status(data: Path) -> str:
    file = data / "run" / "xmpp.json"
    return file.read_text() if file.exists() else ""

"""Tests of the Matrix tendril with a real server (Synapse), a real client and a scripted model."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nio
import pytest
import pytest_asyncio
from terrarium_matrix.tendril import MatrixTendril

from terrarium import Config
from terrarium.testing import running as ready
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE, until
from tests.kit.synapse import Synapse, synapse

pytestmark = [pytest.mark.server, pytest.mark.process]

PNG = b"\x89PNG\r\n\x1a\nfrogs"


class Person:
    """A person with an account; `seen` are the events of their rooms, as far as `sees` has come,
    `typing` who was typing at the same time."""

    def __init__(self, server: Synapse, name: str, token: str) -> None:
        self.account, self.client = f"@{name}:localhost", nio.AsyncClient(server.url)
        self.client.access_token, self.client.user_id = token, self.account
        self.client.add_event_callback(lambda _, event: self.seen.append(event.source), nio.Event)
        self.client.add_ephemeral_callback(
            lambda _, event: self.typing.append({"users": event.users}), nio.TypingNoticeEvent
        )
        self.seen: list[dict[str, Any]] = []
        self.typing: list[dict[str, Any]] = []

    async def say(self, room: str, text: str, **more: Any) -> str:
        """Send a message; return its id."""
        content = {"msgtype": "m.text", "body": text, **more}
        sent = await self.client.room_send(room, "m.room.message", content)
        return str(sent.event_id)

    async def sees(self, **content: Any) -> dict[str, Any]:
        """Wait for an event of somebody else with such a content; return it, and forget those
        before it of its kind. Raises TimeoutError."""
        events = self.typing if "users" in content else self.seen
        async with asyncio.timeout(PATIENCE):
            while True:
                while events:
                    event = events.pop(0)
                    found = event.get("content", event)
                    if (
                        event.get("sender") != self.client.user_id
                        and content.items() <= found.items()
                    ):
                        return event
                await self.client.sync(timeout=5_000)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Synapse]:
    async with synapse(tmp_path_factory.mktemp("synapse")) as running:
        yield running


@asynccontextmanager
async def person(server: Synapse, name: str) -> AsyncIterator[Person]:
    them = Person(server, name, await server.register(name))
    try:
        yield them
    finally:
        await them.client.close()


@asynccontextmanager
async def in_a_room(
    server: Synapse, data: Path, script: ScriptedOpenAI, name: str
) -> AsyncIterator[tuple[MatrixTendril, Person, str]]:
    """Run the tendril of the account NAMEbot in the room #NAME:localhost, in which NAME is."""
    async with person(server, name) as them:
        made = await them.client.room_create(alias=name, preset=nio.RoomPreset.public_chat)
        settings = {
            "homeserver": server.url,
            "token": await server.register(f"{name}bot"),
            "rooms": [f"#{name}:localhost"],
            "admins": [them.account],
        }
        tables = {"agent": {"api_url": script.url, "timezone": "UTC"}, "matrix": settings}
        async with ready(MatrixTendril(Config(tables, None, data))) as tendril:
            await them.client.sync()
            yield tendril, them, made.room_id


async def test_an_answer_grows_in_the_thread_of_its_question(
    server: Synapse, tmp_path: Path
) -> None:
    async with ScriptedOpenAI() as script, in_a_room(server, tmp_path, script, "ada") as scene:
        tendril, ada, room = scene
        script.card = {"parameters": 8_000_000_000}
        script.hang("At six, as always.")
        root = await ada.say(room, "about the pump")
        thread = {"rel_type": "m.thread", "event_id": root}
        await ada.say(room, "adabot: when does it start?", **{"m.relates_to": thread})
        await ada.sees(users=["@adabot:localhost"])
        draft = await ada.sees(msgtype="m.notice")
        assert draft["content"]["body"].startswith("At six")
        assert draft["content"]["m.relates_to"]["event_id"] == root
        assert draft["content"]["m.mentions"] == {"user_ids": ["@ada:localhost"]}
        script.release()
        edited = (await ada.sees(msgtype="m.notice"))["content"]
        assert edited["m.relates_to"] == {"rel_type": "m.replace", "event_id": draft["event_id"]}
        assert edited["m.new_content"]["body"] == "At six, as always."
        await ada.sees(users=[])
        await until(lambda: tendril.turns.pending == 0)
        await tendril.log.chat_log.flush()
        assert [
            (line.nick, line.text, line.account) for line in await tendril.log.recent("#ada")
        ] == [
            ("ada", "about the pump", "@ada:localhost"),
            ("ada", "adabot: when does it start?", "@ada:localhost"),
            ("adabot", "At six, as always.", None),
        ]
        # In the room, and in each thread, a person has a conversation of their own.
        script.say("It is a pump.")
        await ada.say(room, "adabot: and what is it?")
        assert "m.relates_to" in (await ada.sees(body="It is a pump."))["content"]
        assert "At six" not in str(script.requests[-1]["messages"][1:-1])


async def test_who_comes_and_goes_is_logged_and_what_is_redacted_is_removed(
    server: Synapse, tmp_path: Path
) -> None:
    async with (
        ScriptedOpenAI() as script,
        in_a_room(server, tmp_path, script, "bob") as (tendril, bob, room),
        person(server, "eve") as eve,
    ):
        await eve.client.join(room)
        await bob.sees(membership="join")
        said = await eve.say(room, "the code is 1234")
        # What no client sends; it ends nothing.
        await eve.client.room_send(room, "m.room.message", {"msgtype": "m.text", "body": 5})
        await eve.say(room, "bobbot: hello", **{"m.relates_to": {"rel_type": "m.thread"}})
        secret = dict.fromkeys(("ciphertext", "device_id", "sender_key", "session_id"), "A")
        secret["algorithm"] = "m.megolm.v1.aes-sha2"
        await eve.client.room_send(room, "m.room.encrypted", secret)
        await bob.say(room, ".who")
        await bob.sees(body="3 here: bob, bobbot, eve")
        assert "is encrypted" in (tmp_path / "run" / "matrix.json").read_text()
        await eve.client.room_redact(room, said)
        await eve.client.room_leave(room)
        await bob.sees(membership="leave")
        await bob.say(room, ".seen eve")
        await bob.sees(body="I do not know eve.")
        await tendril.log.chat_log.flush()
        lines = await tendril.log.recent("#bob")
        assert [(line.type, line.text) for line in lines if line.nick == "eve"] == [
            ("JOIN", ""),
            ("PART", ""),
        ]


async def test_an_image_is_shown_to_the_model(server: Synapse, tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, in_a_room(server, tmp_path, script, "cyd") as scene:
        _, cyd, room = scene
        script.able = {"vision": True}
        script.say("A frog.").say("Still a frog.")
        uploaded, _ = await cyd.client.upload(io.BytesIO(PNG), "image/png", filesize=len(PNG))
        image = {"msgtype": "m.image", "url": uploaded.content_uri, "filename": "frog.png"}
        shown = await cyd.say(room, "cydbot: what is this?", **image)
        await cyd.sees(body="A frog.")
        await cyd.say(
            room, "cydbot: sure?", **{"m.relates_to": {"m.in_reply_to": {"event_id": shown}}}
        )
        await cyd.sees(body="Still a frog.")
        for request in script.requests:
            assert "data:image/png" in str(request["messages"])


async def test_what_is_private_is_said_only_to_who_is_alone_with_it(
    server: Synapse, tmp_path: Path
) -> None:
    async with (
        ScriptedOpenAI() as script,
        in_a_room(server, tmp_path, script, "dan") as (tendril, dan, room),
        person(server, "eva"),
    ):
        script.default = "Six."
        made = await dan.client.room_create(is_direct=True, invite=["@danbot:localhost"])
        await dan.sees(membership="join")
        await dan.say(made.room_id, "when?")
        await dan.sees(body="Six.")
        await dan.say(room, ".help frobnicate")
        refusal = await dan.sees(msgtype="m.notice")  # where nobody else reads it
        assert "m.relates_to" not in refusal["content"]
        private = tendril.log.place("~@dan:localhost")
        assert await tendril.say(private, "the tea is ready")
        await dan.sees(body="the tea is ready")
        await dan.client.room_invite(made.room_id, "@eva:localhost")
        await until(lambda: tendril.room_of(private) is None)
        assert not await tendril.say(private, "the password is frogs")
        assert await tendril.say(tendril.log.place("#dan"), "to all")
        assert not await tendril.say(tendril.log.place("#elsewhere"), "hello")
        await dan.say(made.room_id, "is somebody there?")  # eva might hear the answer
        await dan.say(room, ".version")
        await dan.sees(msgtype="m.notice")
        assert len(script.requests) == 1


async def test_without_an_account_the_owner_is_told(tmp_path: Path) -> None:
    tendril = MatrixTendril(Config({}, None, tmp_path))
    running = asyncio.create_task(tendril.run())
    file = tmp_path / "run" / "matrix.json"
    await until(lambda: file.exists() and "set homeserver and token" in file.read_text())
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

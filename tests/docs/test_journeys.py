"""Limits of our files that a line, a question and a chat completion run through.

`pytest -s` prints the lists.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx2
import pytest

from storage.chat_log.event import EVERYTHING
from storage.log import Query
from tests.docs.reference import ROOT
from tests.docs.source import PACKAGES
from tests.kit.agent_server import agent_client
from tests.kit.irc_client import irc_client
from tests.kit.irc_tendril import ROOM, conversation_with, irc_config, irc_tendril, kept_turns
from tests.kit.ircd import embedded_ircd, inspircd
from tests.kit.openai_script import ScriptedOpenAI

# Only ever to be lowered.
# One of them shields a write in a thread from its caller's cancellation, one parses the commands of
# every medium.
MOST_OF_A_LINE = 16
MOST_IRC_OF_A_LINE = 6  # of harnesses/irc
MOST_OF_A_QUESTION = 55  # in the tendril
MOST_OF_A_COMPLETION = 23
MOST_GENERATORS = 6
"""Limit of our asynchronous generators that a chunk of an answer passes through."""

CHAT = "/v1/chat/completions"

WAYS = 8
"""Number of traced ways; only code that all of them run counts, not timers and housekeeping."""

_FOLDERS = tuple(f"{ROOT / package}/" for package in PACKAGES)
_UNCOUNTED = {
    "terrarium/http/serving.py",  # the scripted model server runs it in this process
    "terrarium/file_watcher.py",  # its timer expires in each way of a busy machine
}


class Trace:
    """Records the code of ours that runs inside each `way`, in any thread.

    Enter it before the threads to be traced start: `threading.setprofile` only affects new ones.
    """

    def __init__(self) -> None:
        self._codes: set[CodeType] | None = None
        self._ways: list[set[CodeType]] = []

    def __enter__(self) -> Trace:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        self._codes = None

    @contextmanager
    def way(self) -> Iterator[None]:
        """Record what runs in the block."""
        # Filtered at the end only: a slow profile function would prolong each way, so that timers
        # expire in all of them and count.
        self._codes = codes = set[CodeType]()
        try:
            yield
        finally:
            self._codes = None
            self._ways.append({each for each in codes if each.co_filename.startswith(_FOLDERS)})

    def files(self) -> list[str]:
        """Return the files that all ways ran through, relative to the repository; print them."""
        ways = [{each.co_filename for each in codes} for codes in self._ways]
        assert len(ways) == WAYS
        found = {Path(each).relative_to(ROOT).as_posix() for each in set.intersection(*ways)}
        names = sorted(found - _UNCOUNTED)
        print(f"{len(names)} files:", *names, sep="\n")
        return names

    def generators(self) -> set[str]:
        """Return the names of the asynchronous generators that ran in all ways."""
        codes = set.intersection(*self._ways)
        found = {each.co_qualname for each in codes if each.co_flags & inspect.CO_ASYNC_GENERATOR}
        return found - {"SqliteBackend.changes"}  # which polls, in each way of a busy machine

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        codes = self._codes  # read once: another thread may set it to None
        if codes is not None and event == "call":
            codes.add(frame.f_code)


@asynccontextmanager
async def keyed_client(model: Mapping[str, Any]) -> AsyncIterator[httpx2.AsyncClient]:
    """Run an agent server with a key; yield a client that a tendril would be."""
    async with agent_client(model, {"admin_key": "s3cret"}) as http:
        http.headers |= {"authorization": "Bearer s3cret", "x-session-id": "irc/net/#frogs"}
        yield http


async def test_a_line_takes_a_short_way_from_the_socket_to_the_log(tmp_path: Path) -> None:
    """The server is real, but the traced lines are passed to the connection directly, so that no
    other code runs at the same time."""
    with Trace() as trace:
        async with (
            ScriptedOpenAI() as script,
            embedded_ircd() as ircd,
            irc_client(ircd.port, "alice") as alice,
            irc_tendril(irc_config(tmp_path, ircd.port, script.url)) as tendril,
        ):
            await alice.join(ROOM)
            await alice.say(ROOM, ".ping")
            await alice.expect("pong")
            log, client = tendril.services.log, tendril.networks["irc"]._connection
            assert client
            await log.flush()
            for number in range(WAYS):
                line = f":bob!b@host.example PRIVMSG {ROOM} :{number} frogs are awake\r\n".encode()
                with trace.way():
                    client.data_received(line)
                    await log.flush()
            events = await log.find(Query(scope=EVERYTHING, nick="bob"))
            assert [event.text for event in events] == [f"{n} frogs are awake" for n in range(WAYS)]
    files = trace.files()
    assert len(files) <= MOST_OF_A_LINE
    assert len([name for name in files if name.startswith("harnesses/irc/")]) <= MOST_IRC_OF_A_LINE


async def test_a_question_passes_few_files(tmp_path: Path) -> None:
    """From its IRC line to the stored answer."""
    with Trace() as trace:
        async with (
            inspircd() as ircd,
            ScriptedOpenAI() as script,
            irc_tendril(irc_config(tmp_path, ircd.port, script.url)) as tendril,
            irc_client(ircd.port, "alice") as alice,
        ):
            script.card = {"parameters": 8_000_000_000}
            script.reads = lambda _: "general"
            await alice.join(ROOM)
            await alice.say(ROOM, "the toad is in the pond")
            for number in range(WAYS):
                script.say(f"In pond {number}.")
                with trace.way():
                    await alice.say(ROOM, ".terrarium where do toads usually live?")
                    await alice.expect(f"In pond {number}")
                    await kept_turns(tendril, conversation_with("alice"))
    assert len(trace.files()) <= MOST_OF_A_QUESTION


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_chat_completion_passes_few_files(stream: bool) -> None:
    with Trace() as trace:
        async with ScriptedOpenAI() as script, keyed_client({"upstream": script.url}) as http:
            body = {"messages": [{"role": "user", "content": "hi"}], "stream": stream}
            await http.post(CHAT, json=body)  # the first one initialises what is lazy
            for _ in range(WAYS):
                script.say("one two three")
                with trace.way():
                    answer = await http.post(CHAT, json=body)
                assert "three" in answer.text
    assert len(trace.files()) <= MOST_OF_A_COMPLETION
    assert "OpenAIEngine.chat" in trace.generators()
    assert len(trace.generators()) <= MOST_GENERATORS, trace.generators()


async def test_a_tool_call_made_here_passes_few_generators() -> None:
    tool = {"type": "function", "function": {"name": "look"}}
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [tool], "stream": True}
    call = '{"name": "look", "arguments": {}}'
    model = {"tools": "constrained", "chooses_tools": True}
    with Trace() as trace:
        async with (
            ScriptedOpenAI() as script,
            keyed_client({"upstream": script.url, **model}) as http,
        ):
            for _ in range(WAYS):
                script.say(call).say(call)
                with trace.way():
                    answer = await http.post(CHAT, json=body)
                assert "tool_calls" in answer.text
    assert len(trace.generators()) <= MOST_GENERATORS, trace.generators()

"""Whatever happens in which order: calls keep their results, no turn is lost, no conversation sees
another one, through questions, restarts, compactions and forgetting."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Coroutine, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from harnesses.core.tendril.turn import TurnRequest
from llm.memory.consolidation import EPISODE_TURNS, MAX_UNSUMMARISED
from storage.memory.memories import MemoryKind
from terrarium.config import Config
from tests.kit.clock import ManualClock
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.small_tendril import SmallTendril
from tests.kit.summing import seen

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
PEOPLE = ("ada", "bob")
ROOMS = ("pond", "desert")
WORD = re.compile(r"q\d+")

T = TypeVar("T")
Conversation = tuple[str, str]
CONVERSATIONS = [(room, who) for room in ROOMS for who in PEOPLE]
conversations = st.sampled_from(CONVERSATIONS)


class Interleaved(RuleBasedStateMachine):
    """A tendril with two rooms of two people each, and what it should know. The word of a question
    tells the room by its first digit, and the person by its second."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.script = ScriptedOpenAI()
        self.script.summed = seen
        self.clock = ManualClock(NOON)
        self.kept: dict[Conversation, list[str]] = {each: [] for each in CONVERSATIONS}
        self.gone: set[str] = set()
        self.number = 0
        self.do(self.script.__aenter__())
        self.start()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something to its end; jobs go on meanwhile, and only then."""
        return self.runner.run(work)

    def start(self) -> None:
        """Let the tendril run."""
        config = Config({"agent": {"api_url": self.script.url}}, None, Path(self.folder.name))
        self.tendril = SmallTendril(config, self.clock)
        self.living = self.tendril.living()
        self.do(self.living.__aenter__())

    def stop(self) -> None:
        """End it wherever it is."""
        self.do(self.living.__aexit__(None, None, None))

    def teardown(self) -> None:
        """End all."""
        self.stop()
        self.do(self.script.__aexit__(None, None, None))
        self.runner.close()
        self.folder.cleanup()

    def question(self, conversation: Conversation) -> str:
        """A new question."""
        self.number += 1
        return f"{prefix(conversation)}{self.number:04}"

    async def turn(self, conversation: Conversation, text: str) -> str:
        """Ask it."""
        room, who = conversation
        result = await self.tendril.turn(
            TurnRequest(conversation=f"{room}/{who}", who=who, text=text, room=room)
        )
        return result.text if result.ok else ""

    @rule(conversation=conversations, rounds=st.integers(0, 2))
    def ask(self, conversation: Conversation, rounds: int) -> None:
        """A question, with some rounds of tools."""
        for number in range(rounds):
            self.script.calls(("cups", {}), ("cups", {"wrong": number}))
        text = self.question(conversation)
        self.script.say(f"answer to {text}")
        assert self.do(self.turn(conversation, text)) == f"answer to {text}"
        self.kept[conversation].append(text)

    @rule()
    def ask_all_at_once(self) -> None:
        """Everybody asks everywhere, and some twice."""
        asked = [*CONVERSATIONS, *CONVERSATIONS[::2]]
        texts = [self.question(conversation) for conversation in asked]

        async def together() -> list[str]:
            return await asyncio.gather(*map(self.turn, asked, texts))

        assert self.do(together()) == ["ok"] * len(asked)
        for conversation, text in zip(asked, texts, strict=True):
            self.kept[conversation].append(text)

    @rule(conversation=conversations)
    def crash_while_answering(self, conversation: Conversation) -> None:
        """The tendril ends between the result of a tool and the answer."""
        text = self.question(conversation)
        self.script.call("cups", {}).answer(Answer(hang=True))

        async def begun() -> None:
            asking = asyncio.create_task(self.turn(conversation, text))
            await self.script.arrived(len(self.script.requests) + 2)
            asking.cancel()
            await asyncio.wait({asking})

        self.do(begun())
        self.restart()

    @rule()
    def restart(self) -> None:
        """It ends and begins, whatever its worker was doing."""
        self.stop()
        self.do(self.clock.advance(timedelta(minutes=40)))
        self.start()

    @rule(conversation=conversations)
    def compact(self, conversation: Conversation) -> None:
        """Somebody wants to go on with less."""
        self.do(self.tendril.turns.compact("/".join(conversation)))

    @rule(conversation=conversations)
    def clear(self, conversation: Conversation) -> None:
        """Somebody wants it forgotten."""
        count = self.do(self.tendril.clear("/".join(conversation)))
        assert count == len(self.kept[conversation])
        self.gone.update(self.kept[conversation])
        self.kept[conversation] = []

    @rule()
    def settle(self) -> None:
        """All jobs are done; then there is nothing left to do."""
        self.do(self.clock.advance(timedelta(hours=1)))
        self.do(self.tendril.settled())
        if self.do(self.tendril.jobs.all("dead")):
            return  # it was killed each time
        for room in ROOMS:
            watermarks = self.do(self.tendril.memory.memories.progress(room))
            turns = self.do(self.tendril.memory.memories.turns(room, 0, 1 << 62, 1_000))
            left = [turn.id for turn in turns]
            assert len([turn for turn in left if turn > watermarks.episodes]) < EPISODE_TURNS
            assert len([turn for turn in left if turn > watermarks.summary]) <= MAX_UNSUMMARISED
            assert self.do(self.tendril.memory.memories.backlog(room, 1)).gaps == []

    @invariant()
    def no_turn_is_lost(self) -> None:
        """What was answered is kept, in order, and nothing else."""
        for (room, who), texts in self.kept.items():
            turns = self.do(self.tendril.conversations.turns(f"{room}/{who}"))
            assert [turn.messages[0]["content"] for turn in turns] == texts

    @invariant()
    def prompts_are_whole_and_of_one_conversation(self) -> None:
        """What was sent since the last look."""
        for request in self.script.requests:
            messages = request["messages"]
            assert broken_calls(messages) == []
            asked = next(each for each in reversed(messages) if each["role"] == "user")
            mine = words([asked])[-1][: len("q00")]
            # The memory of the room, which stands beside the question, is of everybody in it.
            assert {word[:2] for word in words(messages)} == {mine[:2]}
            turns = [each | {"content": question_in(each)} for each in messages]
            assert {word[:3] for word in words(turns)} == {mine}
        for request in self.script.beside:
            assert len({word[:2] for word in words(request["messages"])}) <= 1
        self.script.requests.clear()
        self.script.beside.clear()

    @invariant()
    def memory_has_nothing_twice_of_others_or_that_is_gone(self) -> None:
        """Summaries and episodes, room by room."""
        for room in ROOMS:
            for layer in (MemoryKind.EPISODE, MemoryKind.SUMMARY):
                made = self.do(self.tendril.memory.memories.latest(room, layer, -1))
                found = [word for memory in made for word in WORD.findall(memory.text)]
                assert len(found) == len(set(found))
                assert not set(found) & self.gone
                assert {word[:2] for word in found} <= {prefix((room, "ada"))[:2]}


def prefix(conversation: Conversation) -> str:
    """What the words of a conversation begin with."""
    room, who = conversation
    return f"q{ROOMS.index(room)}{PEOPLE.index(who)}"


def words(messages: Iterable[dict[str, Any]]) -> list[str]:
    """The words of questions in messages."""
    return WORD.findall(" ".join(str(message.get("content")) for message in messages))


def question_in(message: dict[str, Any]) -> str:
    """The text of a message without the sections before a question."""
    return str(message.get("content")).rpartition("\n\n")[2]


def broken_calls(messages: Iterable[dict[str, Any]]) -> list[str]:
    """Calls without a result just behind them, and results without a call."""
    broken: list[str] = []
    waiting: list[str] = []
    for message in messages:
        if message["role"] != "tool":
            broken += waiting
            waiting = [call["id"] for call in message.get("tool_calls", ())]
        elif message["tool_call_id"] in waiting:
            waiting.remove(message["tool_call_id"])
        else:
            broken.append(message["tool_call_id"])
    return broken + waiting


TestInterleaved = pytest.mark.server(pytest.mark.timeout(600)(Interleaved.TestCase))
TestInterleaved.settings = settings(max_examples=6, stateful_step_count=20, deadline=None)

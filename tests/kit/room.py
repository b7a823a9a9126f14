"""Channel with its log and conversations, and the prompts of questions asked in it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from llm.client.token_usage import TokenCountResult
from llm.log_questions import Quoting
from llm.messages.message import Message, PromptSection, Question, wire
from llm.prompt.context_manager import PromptContext, PromptInput
from llm.prompt.log_window import LogWindow, WindowStarts
from storage.chat_log.event import Event, Place
from storage.log import ChatLog
from storage.memory.conversations import Conversations
from tests.kit.lines import said

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LINE = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] (?:<\w+> |\* \w+ |-\w+- )(.*)")


@dataclass
class Room:
    """A channel with its log and conversations, as a tendril sees it.

    If it is `shared`, each nick has its own conversation, as on IRC. `last` is the number of log
    lines in a prompt, `window` the context window in tokens, `counts` that of counted prompts.
    """

    log: ChatLog
    memory: Conversations
    name: str = "#terrarium"
    last: int = 50
    window: int = 100_000
    since: datetime | None = None
    zone: tzinfo = UTC
    sections: Sequence[PromptSection] = ()
    shared: bool = False
    most_tokens: int | None = None
    starts: WindowStarts = field(default_factory=dict)
    lines: int = field(default=0)
    counts: int = field(default=0)

    async def says(self, text: str, nick: str = "ada", **values: Any) -> int:
        """Log one event, a second after the previous one, and return its id."""
        self.lines += 1
        whole = {"time": NOON + timedelta(seconds=self.lines), "nick": nick, **values}
        return await self.log.append(said(text, place=Place("irc", self.name), **whole))

    async def asks(
        self,
        text: str,
        *steps: Message,
        nick: str = "bob",
        answer: str | None = "So.",
    ) -> list[Message]:
        """Log a question and, unless it is None, its answer; return the prompt.

        `steps` are the tool calls and results of the turn.
        """
        anchor = await self.says(f".terrarium {text}", nick)
        log_window = self.view(anchor, nick)
        sent = await self.sent(text, log_window, steps, answer)
        if answer is not None:
            await self.says(f"{nick}: {answer}", "Terra", own=True, reply_to=anchor)
        return sent

    def conversation(self, nick: str) -> str:
        """Return the name of the conversation of `nick`."""
        return f"{self.name}/{nick}" if self.shared else self.name

    def view(self, anchor: int, nick: str = "bob") -> LogWindow:
        """Return the log window of the question at the event `anchor`."""
        return LogWindow(
            log=self.log,
            place=Place("irc", self.name),
            anchor=anchor,
            last=self.last,
            since=self.since,
            starts=self.starts,
            speaker=nick,
            quoting=Quoting(self.zone),
        )

    def given(
        self, question: Question, log_window: LogWindow | None = None, found: Sequence[Event] = ()
    ) -> PromptInput:
        """Return the input of the prompt for a question."""
        return PromptInput(
            store=self.memory,
            conversation=self.conversation(question.who),
            room=self.name,
            person="",
            system="You are Terra.",
            question=question,
            log_window=log_window,
            found=found,
        )

    async def sent(
        self, text: str, log_window: LogWindow | None, steps: Sequence[Message], answer: str | None
    ) -> list[Message]:
        nick = log_window.speaker if log_window else "bob"
        context = PromptContext(
            self.given(Question(nick, text), log_window),
            sections=self.sections,
            share=1.0,
            most_tokens=self.most_tokens,
        )
        await context.load()
        messages = await context.fit(steps, self.count)
        if answer is not None:
            await context.remember([*steps, {"role": "assistant", "content": answer}])
        return [wire(message) for message in messages]

    async def count(self, messages: Sequence[Message]) -> TokenCountResult:
        """Count tokens, of four characters each, and a hundred for the answer."""
        self.counts += 1
        return TokenCountResult(
            len(json.dumps([wire(message) for message in messages])) // 4 + 100, self.window
        )


def spoken(message: Message) -> list[str]:
    """Return the texts of the spoken lines in the log block of a message."""
    found = re.match(r"<irc_logs>\n(.*)\n</irc_logs>\n\n", message["content"], re.DOTALL)
    lines = found[1].split("\n") if found else []
    return [match[1] for line in lines if (match := LINE.fullmatch(line))]


def calls(*names: str) -> list[Message]:
    """Return the steps of a run that called tools: each call with its result."""
    return [
        step
        for number, name in enumerate(names)
        for function in [{"name": name, "arguments": "{}"}]
        for call in [{"id": f"call_{number}", "type": "function", "function": function}]
        for step in (
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": f"result of {name}"},
        )
    ]

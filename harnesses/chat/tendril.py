"""The chat tendril: a conversation in the terminal, stored in DATA/chat.db.

Apart from helpers for the terminal, skills and tools it uses the public names of `terrarium` only.
"""

from __future__ import annotations

import getpass
import sys
from typing import ClassVar

from harnesses.chat.line_input import LineInput
from harnesses.core.services.question_tools import Door
from harnesses.core.tendril.status import web_address
from harnesses.core.text import strip_control_chars
from llm.skills.registry import TEACH
from llm.tools.toolbox import Toolbox
from storage.chat_log.event import PUBLIC
from terrarium import Config, Identity, Origin, Tendril, TurnRequest

CONVERSATION = "terminal"
HELP = """\
/clear   forget what was said here
/tools   what the model can use
/help    this
/quit    end, as Ctrl-D does"""


class ChatTendril(Tendril):
    """Answers the lines of standard input, streaming each answer to standard output."""

    name: ClassVar[str] = "chat"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._input = LineInput(config.data / "run" / "chat.history")

    async def serve(self) -> None:
        """Answer lines until the input ends."""
        self.status.ready("in a terminal")
        if self._input.is_terminal:
            _write("/help says what else there is\n")
        async for line in self._input.lines("> "):
            match line:
                case "":
                    pass
                case "/quit":
                    return
                case "/help":
                    _write(f"{HELP}\n")
                case "/tools":
                    _write(self._tools())
                case "/clear":
                    turns = await self.clear(CONVERSATION)
                    self._input.forget()
                    _write(f"forgotten: {turns} turns\n")
                case _ if line.startswith("/") and " " not in line:
                    _write(f"there is no {strip_control_chars(line)}; /help says what there is\n")
                case _:
                    await self._respond(line)

    def _tools(self) -> str:
        """Return the names of the tools of every question, with the first lines of their
        descriptions."""
        memory = self.memory.for_room(CONVERSATION, CONVERSATION, getpass.getuser())
        owners = (self, *self._door_tools(), *memory.tools(keeps=True), *self.prompts.tools())
        schemas = Toolbox.from_owners(*owners).schemas()
        functions = [schema["function"] for schema in schemas]
        return "".join(f"{f['name']}: {f['description'].splitlines()[0]}\n" for f in functions)

    def _door_tools(self) -> list[object]:
        """Return the tools of the terminal. Whoever runs it may read all channels."""
        return self.tools_for(
            Door(
                log=self.log.tools_within(PUBLIC),
                address=lambda: web_address(self.config, ()),
                room=CONVERSATION,
                who=getpass.getuser(),
            )
        )

    async def _respond(self, line: str) -> None:
        said, who = "", getpass.getuser()

        async def show(piece: str) -> None:
            nonlocal said
            said += piece
            _write(strip_control_chars(piece))

        result = await self.turn(
            TurnRequest(
                conversation=CONVERSATION,
                who=who,
                text=line,
                tools=self._door_tools(),
                rights=lambda: {TEACH},
                on_text=show,
                origin=Origin(self.name, Identity(who)),
            )
        )
        if not said.rstrip().endswith(result.text):
            _write(("\n" if said else "") + strip_control_chars(result.text))
        _write("\n")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()

"""The table of commands of the embedded IRC server.

RFC 2812 as current clients use it (https://modern.ircdocs.horse/). irc3d has commands of the same
names, which collapse spaces, format user text and know no channel modes; these stand before them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harnesses.irc.ircd.client import Client
from harnesses.irc.protocol.message import Message

if TYPE_CHECKING:
    from harnesses.irc.ircd.server import Server

Run = Callable[["Server", Client, Message], None]

NICKLEN, CHANNELLEN, TARGETS = 30, 50, 4


@dataclass(frozen=True, slots=True)
class Command:
    """A command: what it does, the parameters it needs, and whether it needs a welcome first."""

    run: Run
    needs: int
    registered: bool


COMMANDS: dict[str, Command] = {}
"""All of them by name."""


def command(name: str, needs: int = 0, registered: bool = True) -> Callable[[Run], Run]:
    """Put a function into the table as the command `name`."""

    def add(run: Run) -> Run:
        COMMANDS[name] = Command(run, needs, registered)
        return run

    return add

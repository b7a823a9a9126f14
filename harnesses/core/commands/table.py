"""The table of commands: those of every medium, those of a medium, and a tendril's own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, overload

from harnesses.core.commands.log import LogCommands
from harnesses.core.commands.memory import MemoryCommands
from harnesses.core.commands.people import PeopleCommands, WaitingTells
from harnesses.core.commands.privacy import PrivacyCommands
from harnesses.core.commands.questions import QuestionCommands
from harnesses.core.commands.reminders import ReminderCommands
from harnesses.core.commands.request import (
    ASK_COMMAND,
    QUESTION_COMMANDS,
    Command,
    CommandRequest,
    Medium,
    ParsedCommand,
    PrivateReply,
    R,
    Reply,
)
from harnesses.core.commands.research import ResearchCommands

_MARK = "__terrarium_command__"

CommandMethod = Callable[[Any, CommandRequest], Awaitable[Reply]]
"""A method of a tendril that is a command."""


@overload
def command(method: CommandMethod, /) -> CommandMethod: ...


@overload
def command(*names: str, needs: str = "") -> Callable[[CommandMethod], CommandMethod]: ...


def command(
    *names: str | CommandMethod, needs: str = ""
) -> CommandMethod | Callable[[CommandMethod], CommandMethod]:
    """Mark an async method of a tendril as a command, under its own name or under these `names`.

    It takes a `CommandRequest` and returns the reply, "" for none; its docstring, "NAME ARGUMENTS:
    purpose", is its help. With `needs` only those may give it whose request has this right. Raises
    ValueError for a name that nobody could give: one needs lower-case letters only.
    """

    def mark(method: CommandMethod) -> CommandMethod:
        given = [name for name in names if isinstance(name, str)] or [method.__name__]
        for name in given:
            if not (name.isascii() and name.isalpha() and name.islower()):
                raise ValueError(f'"{name}" cannot be a command: use lower-case letters only')
        setattr(method, _MARK, (given, needs))
        return method

    for method in names:
        if not isinstance(method, str):
            return mark(method)
    return mark


def commands_of(owner: object) -> dict[str, Command[Any]]:
    """Return the commands of an object by name: its public methods, as they are defined."""
    return {name: getattr(owner, name) for name in vars(type(owner)) if not name.startswith("_")}


_OF_A_MEDIUM = (ResearchCommands, MemoryCommands, ReminderCommands, PrivacyCommands)
_KINDS = (QuestionCommands, LogCommands, PeopleCommands, *_OF_A_MEDIUM)
COMMON_NAMES = frozenset(name for kind in _KINDS for name in vars(kind) if name[0] != "_") | {
    *QUESTION_COMMANDS,
    "help",
}
"""The names of the commands of every medium."""


def names_of(method: object) -> Sequence[str]:
    """Return the names of a method marked with `@command`, none of any other."""
    names, _ = getattr(method, _MARK, ((), ""))
    return names


class CommandTable(Generic[R]):
    """The commands in `known`, by name: each is a method that returns the reply, "" for none.

    `of_admins` are those of the medium for admins only, `owner` is the tendril whose methods marked
    with `@command` come last. `tells` are what people are to be told.
    """

    def __init__(
        self,
        medium: Medium[R],
        of_admins: Mapping[str, Command[R]] | None = None,
        owner: object = None,
    ) -> None:
        self._medium = medium
        self.known: dict[str, Command[R]] = {}
        questions = QuestionCommands(medium, self.known)
        self.known |= dict.fromkeys(QUESTION_COMMANDS, questions.terrarium)
        self.known |= commands_of(LogCommands(medium, self.known))
        self.tells = WaitingTells(medium)
        self.known |= commands_of(PeopleCommands(medium, self.tells))
        self.known |= commands_of(questions) | {"help": self.help}
        for kind in _OF_A_MEDIUM:
            self.known |= commands_of(kind(medium))
        admins = of_admins or {}
        self.of_admins = admins.keys()
        self.known |= {name: _for_admins(command) for name, command in admins.items()}
        for names, needs, method in marked_commands(owner):
            self.known |= dict.fromkeys(names, _for_the_entitled(method, needs))

    def takes_no_words(self, name: str) -> bool:
        """Return whether the usage of a command, the beginning of its help, has no arguments."""
        command = self.known.get(name)
        return command is not None and (command.__doc__ or "").startswith(f"{name}:")

    def find(self, asked: ParsedCommand, request: R) -> tuple[Command[R], R] | None:
        """Return the command that was given, with its request, None if it is none of ours: then it
        is a question if it was said to us, else prose."""
        command = self.known.get(asked.command)
        if command is None and asked.question:
            return self.known[ASK_COMMAND], replace(request, words=asked.question)
        if command is None:  # in private it can only be a slip
            return (self.help, replace(request, words=asked.command)) if request.private else None
        if self.takes_no_words(asked.command) and " " in asked.words:
            if not request.private:
                return None  # ".clear as mud" is no command
            return self.help, replace(request, words=asked.command)
        return command, request

    async def help(self, request: R) -> Reply:
        """help [COMMAND]: my commands, or what one of them does"""
        prefix, hidden = self._medium.prefix(request.place), self.of_admins
        name = request.words.lower().strip().removeprefix(prefix)
        if name:
            if name not in self.known or (name in hidden and not request.admin):
                return PrivateReply(f"There is no command {name[:30]}; {prefix}help lists them.")
            return prefix + " ".join((self.known[name].__doc__ or "").split())
        general = " ".join(f"{prefix}{each}" for each in self.known if each not in hidden)
        lines = [f"{general} ({prefix}help COMMAND explains one)"]
        if request.admin and hidden:
            lines.append(f"for admins: {' '.join(f'{prefix}{each}' for each in hidden)}")
        return "\n".join(lines)


def _for_admins(command: Command[R]) -> Command[R]:
    """Wrap a command so that it is refused to everybody but admins; the help text stays."""

    @functools.wraps(command)
    async def admin_only(request: R) -> Reply:
        return await command(request) if request.admin else PrivateReply("Only admins may do that.")

    return admin_only


def _for_the_entitled(command: Command[R], right: str) -> Command[R]:
    """Wrap a command so that it is refused to those without a right; "" is everybody's."""

    @functools.wraps(command)
    async def of_the_entitled(request: R) -> Reply:
        if right and right not in request.rights():
            return PrivateReply("You do not have permission to do that.")
        return await command(request)

    return of_the_entitled


def marked_commands(owner: object) -> Iterator[tuple[Sequence[str], str, Command[Any]]]:
    """Yield the names, the needed right and the bound method of each `@command` of an object."""
    for name in dict.fromkeys(name for kind in type(owner).__mro__[::-1] for name in vars(kind)):
        if marks := getattr(inspect.getattr_static(owner, name), _MARK, None):
            yield (*marks, getattr(owner, name))

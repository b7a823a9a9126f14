"""The commands of the bot: one method each, whose docstring is the help text."""

from __future__ import annotations

import functools

from harnesses.irc.commands.admin import AdminCommands
from harnesses.irc.commands.general import GeneralCommands
from harnesses.irc.commands.log import LogCommands
from harnesses.irc.commands.memory import MemoryCommands
from harnesses.irc.commands.privacy import PrivacyCommands
from harnesses.irc.commands.reminders import ReminderCommands
from harnesses.irc.operators import OperatorCommands
from harnesses.irc.policy.requests import (
    QUESTION_COMMANDS,
    Command,
    CommandRequest,
    PrivateReply,
    Reply,
)
from harnesses.irc.questions.handler import QuestionHandler
from harnesses.irc.questions.unasked import UnaskedAnswers
from harnesses.irc.services import BotServices


def commands_of(owner: object) -> dict[str, Command]:
    """Return the commands of an object by name: its public methods, as they are defined."""
    return {name: getattr(owner, name) for name in vars(type(owner)) if not name.startswith("_")}


class Commands:
    """The commands in `known`, by name: each is a method that returns the reply, "" for none.

    `of_admins` are those for admins only, `of_operators` those of them that channel operators have
    with other bots too.
    """

    def __init__(
        self, services: BotServices, questions: QuestionHandler, unasked: UnaskedAnswers
    ) -> None:
        self._services = services
        operators = commands_of(OperatorCommands(services))
        admins = commands_of(AdminCommands(services, unasked)) | operators
        self.of_admins, self.of_operators = admins.keys(), operators.keys()
        self.known: dict[str, Command] = {}
        general = GeneralCommands(services, questions, unasked, self.known)
        self.known |= dict.fromkeys(QUESTION_COMMANDS, general.terrarium)
        self.known |= commands_of(LogCommands(services, lambda name: name in self.known))
        self.known |= commands_of(general) | {"help": self.help}
        for owner in (MemoryCommands, ReminderCommands, PrivacyCommands):
            self.known |= commands_of(owner(services))
        self.known |= {name: _for_admins(command) for name, command in admins.items()}

    def takes_no_words(self, name: str) -> bool:
        """Return whether the usage of a command, the beginning of its help, has no arguments."""
        command = self.known.get(name)
        return command is not None and (command.__doc__ or "").startswith(f"{name}:")

    async def help(self, request: CommandRequest) -> Reply:
        """help [COMMAND]: my commands, or what one of them does"""
        prefix, hidden = self._services.prefix(request.place), self.of_admins
        name = request.words.lower().strip().removeprefix(prefix)
        if name:
            if name not in self.known or (name in hidden and not request.admin):
                return PrivateReply(f"There is no command {name[:30]}; {prefix}help lists them.")
            return prefix + " ".join((self.known[name].__doc__ or "").split())
        general = " ".join(f"{prefix}{each}" for each in self.known if each not in hidden)
        lines = [f"{general} ({prefix}help COMMAND: what it does)"]
        if request.admin:
            lines.append(f"for admins: {' '.join(f'{prefix}{each}' for each in hidden)}")
        return "\n".join(lines)


def _for_admins(command: Command) -> Command:
    """Wrap a command so that it is refused to everybody but admins; the help text stays."""

    @functools.wraps(command)
    async def admin_only(request: CommandRequest) -> Reply:
        return await command(request) if request.admin else PrivateReply("Only admins may do that.")

    return admin_only

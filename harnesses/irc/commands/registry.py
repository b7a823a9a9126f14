"""The commands of the bot: one method each, whose docstring is the help text."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version

from harnesses.core.tendril.turn import Action, TurnResult
from harnesses.core.text import counted
from harnesses.irc.commands.admin import AdminCommands
from harnesses.irc.commands.log import LogCommands
from harnesses.irc.commands.memory import MemoryCommands, memory_of
from harnesses.irc.commands.privacy import PrivacyCommands
from harnesses.irc.commands.reminders import ReminderCommands
from harnesses.irc.policy.requests import (
    ASK_COMMAND,
    Command,
    CommandRequest,
    PrivateReply,
    conversation_of,
    without_highlight,
)
from harnesses.irc.questions.handler import QuestionHandler
from harnesses.irc.questions.proactive import ProactiveSpeech
from harnesses.irc.replies.sender import sanitize
from harnesses.irc.services import BotServices
from llm.answerers.plain_commands import asks_for_fact, plain_command
from llm.client.profile import Profile
from llm.reading.introduction import IDENTITY, TOPICS, Introduction
from llm.reading.reading import Reading

OPERATOR_COMMANDS = frozenset(
    {"kick", "ban", "kickban", "unban", "mute", "unmute", "quiet", "unquiet"}
    | {"op", "deop", "halfop", "dehalfop", "voice", "devoice", "mode", "topic"}
)
"""Commands of other bots for channel operators. Here an admin asks the model for these instead."""


class Commands:
    """The commands by name; each returns the text of the reply, "" for none."""

    def __init__(
        self,
        services: BotServices,
        questions: QuestionHandler,
        proactive: ProactiveSpeech,
    ) -> None:
        self._services = services
        self._questions, self._proactive = questions, proactive
        admin = AdminCommands(services, proactive)
        self._admin, self.follow_invite = admin.known, admin.follow_invite
        self.known: Mapping[str, Command] = {
            ASK_COMMAND: self.terrarium,
            "ask": self.terrarium,
            **LogCommands(services, lambda name: name in self.known).known,
            "who": self.who,
            "clear": self.clear,
            "compact": self.compact,
            "stop": self.stop,
            "more": self.more,
            "ping": self.ping,
            "version": self.version,
            "help": self.help,
            "about": self.about,
            **MemoryCommands(services).known,
            **ReminderCommands(services).known,
            **PrivacyCommands(services).known,
            **{name: _for_admins(command) for name, command in self._admin.items()},
        }

    async def match_plain_command(
        self, request: CommandRequest, reading: Reading
    ) -> tuple[str, CommandRequest] | None:
        """Return the name of the command that a question asks for in plain words, with the request
        for it; None if it asks for none, or may ask a capable model for more than that. Raises
        StorageError."""
        facts: list[str] = []
        if asks_for_fact(reading) and not request.who.bridged:
            mine = memory_of(self._services.resources.memory, request)
            facts = [fact.key for fact in await mine.facts()]
        found = plain_command(reading, await self._profile(request), facts)
        return (found.name, replace(request, words=found.words)) if found else None

    async def _profile(self, request: CommandRequest) -> Profile:
        """Return the profile of the model that a question would be answered by."""
        own = self._services.resources
        behaviour = self._services.behaviours.resolve(request.place)
        persona = own.prompts.personas.choose(behaviour.persona)
        resolve = own.catalog.resolve
        name = await resolve(behaviour.model) or await resolve(persona.model)
        return Profile.from_card(await own.catalog.card(name))

    async def terrarium(self, request: CommandRequest) -> str:
        """terrarium QUESTION: ask me"""
        request = replace(request, words=sanitize(request.words).strip())  # no colour codes
        if not request.words:
            return f"Ask me something: {self._services.prefix(request.place)}{ASK_COMMAND} QUESTION"
        if exact := await self.match_plain_command(request, Reading(request.words)):
            name, given = exact
            return await self.known[name](given)

        async def command(reading: Reading) -> Action | None:
            meant = await self.match_plain_command(request, reading)
            return functools.partial(self._run, *meant) if meant else None

        return await self._questions.ask(request, command)

    async def _run(self, name: str, request: CommandRequest) -> None:
        """Run a command that a question asks for, and reply."""

        async def execute() -> TurnResult:
            return TurnResult(await self.known[name](request))

        result = await self._services.turns.catch_errors(execute)
        await self._services.sender.reply(request, result.text)

    async def who(self, request: CommandRequest) -> str:
        """who: who is here"""
        if request.private and not request.network.is_channel(request.place.channel):
            return "Only you and I are here."
        members = request.network.roster.nicks(request.place.channel)
        return f"{len(members)} here: {', '.join(map(without_highlight, members))}"

    async def clear(self, request: CommandRequest) -> str:
        """clear: forget our conversation (the log stays)"""
        await self._proactive.on_cleared(request)
        turns = await self._services.turns.clear(conversation_of(request))
        return f"Forgotten: our conversation of {counted(turns, 'turn')}."

    async def compact(self, request: CommandRequest) -> str:
        """compact: look at the newest turns of our conversation only"""
        turns = await self._services.turns.compact(conversation_of(request))
        return (
            f"I look no more at the oldest {counted(turns, 'turn')}."
            if turns
            else "It is short already."
        )

    async def stop(self, request: CommandRequest) -> str:
        """stop: end the answer that I am working on for you"""
        own = request.who.name
        nick = request.words.split()[0] if request.words else own
        if not request.admin and request.network.fold(nick) != request.network.fold(own):
            return PrivateReply("Only admins may stop what others have asked.")
        stopped = self._services.turns.stop(conversation_of(request, nick))
        return "Stopped." if stopped else PrivateReply("There is nothing to stop.")

    async def more(self, request: CommandRequest) -> str:
        """more: the rest of a long answer"""
        sender = self._services.sender
        if request.place in sender.streaming.values():
            return PrivateReply("The answer is still being written; ask again when it is there.")
        return "" if await sender.send_more(sender.target_of(request)) else "There is no more."

    async def ping(self, request: CommandRequest) -> str:
        """ping: am I there?"""
        return "pong"

    async def version(self, request: CommandRequest) -> str:
        """version: what I run"""
        return f"Terrarium {version('terrarium')}"

    async def about(self, request: CommandRequest) -> str:
        """about [abilities|model]: who I am, what I can do, and by which model"""
        topic = request.words.lower().strip() or IDENTITY
        if topic not in TOPICS:
            return PrivateReply(f"About what? One of: {', '.join(TOPICS)}.")
        catalog, behaviour = (
            self._services.resources.catalog,
            self._services.behaviours.resolve(request.place),
        )
        introduction = Introduction(
            name=request.network.nick,
            model=await catalog.shown_name(behaviour.model),
            chooses_tools=await catalog.supports_tools(behaviour.model),
            web_address=self._services.web_address or "",
            prefix=behaviour.command_prefix,
        )
        return introduction.render(topic)

    async def operators_only(self, request: CommandRequest) -> str:
        """Explain who may ask for channel operations, and how."""
        if not request.admin:
            return PrivateReply("That is for operators of the channel and for my admins.")
        return PrivateReply(
            "There is no such command. With admin_tools = true in [irc] I do it when you ask me in"
            f" words: {self._services.prefix(request.place)}{ASK_COMMAND} kick NICK, please."
        )

    async def help(self, request: CommandRequest) -> str:
        """help [COMMAND]: my commands, or what one of them does"""
        prefix = self._services.prefix(request.place)
        name = request.words.lower().strip().removeprefix(prefix)
        hidden = () if request.admin else self._admin
        if name:
            command = None if name in hidden else self.known.get(name)
            if command is None:
                return PrivateReply(f"There is no command {name[:30]}; {prefix}help lists them.")
            return prefix + " ".join((command.__doc__ or "").split())
        names = [f"{prefix}{each}" for each in self.known if each not in self._admin]
        lines = [f"{' '.join(names)} ({prefix}help COMMAND: what it does)"]
        if request.admin:
            lines.append("for admins: " + " ".join(f"{prefix}{each}" for each in self._admin))
        return "\n".join(lines)


def _for_admins(command: Command) -> Command:
    """Wrap a command so that it is refused to everybody but admins; the help text stays."""

    @functools.wraps(command)
    async def admin_only(request: CommandRequest) -> str:
        return await command(request) if request.admin else PrivateReply("Only admins may do that.")

    return admin_only

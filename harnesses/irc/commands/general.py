"""Commands about questions, conversations and the bot itself."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version

from harnesses.core.tendril.turn import Action
from harnesses.core.text import counted
from harnesses.irc.commands.memory import memory_of
from harnesses.irc.policy.requests import (
    ASK_COMMAND,
    Command,
    CommandRequest,
    PrivateReply,
    Reply,
    conversation_of,
    fold_place,
    without_highlight,
)
from harnesses.irc.protocol.message import sanitize
from harnesses.irc.questions.handler import QuestionHandler
from harnesses.irc.questions.unasked import UnaskedAnswers
from harnesses.irc.services import BotServices
from llm.answerers.plain_commands import asks_for_fact, plain_command
from llm.client.profile import Profile
from llm.reading.reading import Reading

ABILITIES, IDENTITY, MODEL = "abilities", "identity", "model"
TOPICS = (ABILITIES, IDENTITY, MODEL)
"""The topics that can be asked about."""


def introduce(
    topic: str,
    *,
    name: str,
    model: str,
    chooses_tools: bool,
    web_address: str | None = None,
    prefix: str = ".",
) -> str:
    """Return one to three lines about one of the `TOPICS`, as said by the bot `name`.

    `model` is "" while it cannot be reached, `web_address` that of the log, if people can open it.
    """
    web = f" The log to read and search is at {web_address}" if web_address else ""
    further = f"My commands: {prefix}help.{web}"
    if topic == ABILITIES:
        tools = " and call tools for it" if chooses_tools else ""
        return (
            f"I answer questions{tools}, and find what was said here: {prefix}search pump.\nWithout"
            " my model I work out sums, units, dates and time zones, roll dice, remind you"
            ' ("remind me in 20 minutes to check the oven") and remember things ("remember that my'
            f' tea is oolong").\n{further}'
        )
    if topic == MODEL:
        kind = (
            "It chooses by itself when to use tools"
            if chooses_tools
            else "It is a small one that cannot use tools by itself"
        )
        return (
            f"My model is {model or 'not reachable at the moment'}. {kind}, and what it says may be"
            " wrong; sums, dates, reminders and searches do not pass through it."
        )
    shown = f" ({model})" if model else ""
    return (
        f"I am {name}, a bot: a program with a language model{shown} that runs where I am hosted. I"
        " keep the log of this place and answer questions about it and about anything else."
        f"\n{further}"
    )


class GeneralCommands:
    """The commands; `known` are those of all kinds, by name, for questions that ask for one."""

    def __init__(
        self,
        services: BotServices,
        questions: QuestionHandler,
        unasked: UnaskedAnswers,
        known: Mapping[str, Command],
    ) -> None:
        self._services, self._known = services, known
        self._questions, self._unasked = questions, unasked

    async def terrarium(self, request: CommandRequest) -> Reply:
        """terrarium QUESTION: ask me"""
        request = replace(request, words=sanitize(request.words).strip())  # no colour codes
        if not request.words:
            return f"Ask me something: {self._services.prefix(request.place)}{ASK_COMMAND} QUESTION"
        if exact := await self._plain_command(request, Reading(request.words)):
            run, given = exact
            return await run(given)

        async def command(reading: Reading) -> Action | None:
            meant = await self._plain_command(request, reading)
            return functools.partial(self._questions.run, *meant) if meant else None

        return await self._questions.ask(request, command)

    async def about(self, request: CommandRequest) -> Reply:
        """about [abilities|model]: who I am, what I can do, and by which model"""
        topic = request.words.lower().strip() or IDENTITY
        if topic not in TOPICS:
            return PrivateReply(f"About what? One of: {', '.join(TOPICS)}.")
        catalog = self._services.resources.catalog
        behaviour = self._services.behaviours.resolve(request.place)
        return introduce(
            topic,
            name=request.network.nick,
            model=await catalog.shown_name(behaviour.model),
            chooses_tools=bool(await catalog.chooses_tools(behaviour.model)),
            web_address=self._services.web_address,
            prefix=behaviour.command_prefix,
        )

    async def who(self, request: CommandRequest) -> Reply:
        """who: who is here"""
        if request.private and not request.network.is_channel(request.place.channel):
            return "Only you and I are here."
        members = request.network.roster.nicks(request.place.channel)
        return f"{len(members)} here: {', '.join(map(without_highlight, members))}"

    async def clear(self, request: CommandRequest) -> Reply:
        """clear: forget our conversation (the log stays)"""
        network = request.network
        place = fold_place(network, request.place.channel)
        self._unasked.speech.drop(place, network.fold(request.nick))
        turns = await self._services.turns.clear(conversation_of(request))
        return f"Forgotten: our conversation of {counted(turns, 'turn')}."

    async def compact(self, request: CommandRequest) -> Reply:
        """compact: go on with the newest turns of our conversation only"""
        turns = await self._services.turns.compact(conversation_of(request))
        return (
            f"I leave out the oldest {counted(turns, 'turn')} from now on."
            if turns
            else "Our conversation is short already."
        )

    async def stop(self, request: CommandRequest) -> Reply:
        """stop: end the answer that I am working on for you"""
        fold, nick = request.network.fold, request.words.partition(" ")[0]
        if fold(nick) == fold(request.nick):
            nick = ""
        if nick and not request.admin:
            return PrivateReply("Only admins may stop what others have asked.")
        if self._questions.stop(request, nick):
            return "Stopped."
        prefix = self._services.prefix(request.place)
        return PrivateReply(
            f"There is nothing to stop ({prefix}reminders lists what can be cancelled)."
        )

    async def more(self, request: CommandRequest) -> Reply:
        """more: the rest of a long answer"""
        sender = self._services.sender
        if request.place in sender.streaming.values():
            return PrivateReply("The answer is still being written; ask again when it is finished.")
        return "" if await sender.send_more(sender.target_of(request)) else "There is no more."

    async def ping(self, request: CommandRequest) -> Reply:
        """ping: am I there?"""
        return "pong"

    async def version(self, request: CommandRequest) -> Reply:
        """version: what I run"""
        return f"Terrarium {version('terrarium')}"

    async def _plain_command(
        self, request: CommandRequest, reading: Reading
    ) -> tuple[Command, CommandRequest] | None:
        """Return the command that a question asks for in plain words, with the request
        for it; None if it asks for none, or may ask a capable model for more than that. Raises
        StorageError."""
        facts: list[str] = []
        if asks_for_fact(reading) and not request.who.bridged:
            mine = memory_of(self._services, request)
            facts = [fact.key for fact in await mine.facts()]
        # By the profile of the model that would answer the question.
        own = self._services.resources
        behaviour, resolve = self._services.behaviours.resolve(request.place), own.catalog.resolve
        persona = own.configuration.prompts.personas.choose(behaviour.persona)
        name = await resolve(behaviour.model) or await resolve(persona.model)
        profile = Profile.from_card(await own.catalog.card(name))
        found = plain_command(reading, profile, facts)
        return (self._known[found.name], replace(request, words=found.words)) if found else None

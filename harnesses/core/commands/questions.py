"""Commands about questions, conversations and the bot itself."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Generic

from harnesses.core.commands.memory import memory_of
from harnesses.core.commands.request import (
    ASK_COMMAND,
    Command,
    Medium,
    PrivateReply,
    R,
    Reply,
)
from harnesses.core.tendril.turn import Action
from harnesses.core.text import counted
from llm.answerers.plain_commands import asks_for_fact, plain_command
from llm.client.profile import Profile
from llm.reading.reading import Reading
from terrarium import __version__

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
            f"I answer questions{tools}, and search the log: {prefix}search pump.\nEven"
            " without a model I work out sums, units, dates and time zones, roll dice, remind you"
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
            f"My model is {model or 'not reachable at the moment'}. {kind}, and its answers may be"
            " wrong; sums, dates, reminders and searches do not use it."
        )
    shown = f" ({model})" if model else ""
    return (
        f"I am {name}, a bot: a program with a language model{shown} on my operator's machine."
        " I log this place and answer questions about it and about anything else."
        f"\n{further}"
    )


class QuestionCommands(Generic[R]):
    """The commands; `known` are those of all kinds, by name, for questions that ask for one."""

    def __init__(self, medium: Medium[R], known: Mapping[str, Command[R]]) -> None:
        self._medium, self._known = medium, known

    async def terrarium(self, request: R) -> Reply:
        """terrarium [@MODEL] QUESTION: ask me, or another of my models"""
        if request.words.startswith("@"):
            name, _, words = request.words[1:].partition(" ")
            if not await self._medium.tendril.resources.catalog.card(name):
                return PrivateReply(f"I have no model {name[:60]}.")
            request = replace(request, model=name, words=words.strip())
        if not request.words:
            return f"Ask me something: {self._medium.prefix(request.place)}{ASK_COMMAND} QUESTION"
        if exact := await self._plain_command(request, Reading(request.words)):
            run, given = exact
            return await run(given)

        async def command(reading: Reading) -> Action | None:
            meant = await self._plain_command(request, reading)
            return functools.partial(self._medium.run, *meant) if meant else None

        return await self._medium.ask(request, command)

    async def about(self, request: R) -> Reply:
        """about [abilities|model]: who I am, what I can do, which model I use"""
        topic = request.words.lower().strip() or IDENTITY
        if topic not in TOPICS:
            return PrivateReply(f"About what? One of: {', '.join(TOPICS)}.")
        medium, catalog = self._medium, self._medium.tendril.resources.catalog
        model = medium.model(request)
        return introduce(
            topic,
            name=medium.nicks(request)[0],
            model=await catalog.shown_name(model),
            chooses_tools=bool(await catalog.chooses_tools(model)),
            web_address=medium.web_address,
            prefix=medium.prefix(request.place),
        )

    async def who(self, request: R) -> Reply:
        """who: who is here"""
        members = self._medium.members(request)
        if not members:
            return "Only you and I are here."
        return f"{len(members)} here: {', '.join(map(self._medium.shown_nick, members))}"

    async def clear(self, request: R) -> Reply:
        """clear: forget our conversation (the log stays)"""
        turns = await self._medium.clear(request)
        return f"Forgotten: our conversation of {counted(turns, 'turn')}."

    async def compact(self, request: R) -> Reply:
        """compact: keep only the newest turns of our conversation"""
        turns = await self._medium.tendril.turns.compact(request.conversation)
        return (
            f"I dropped the oldest {counted(turns, 'turn')}."
            if turns
            else "Our conversation is already short."
        )

    async def stop(self, request: R) -> Reply:
        """stop: cancel the answer that I am working on for you"""
        nick = request.words.partition(" ")[0]
        if request.fold(nick) == request.fold(request.nick):
            nick = ""
        if nick and not request.admin:
            return PrivateReply("Only admins may stop other people's questions.")
        if self._medium.stop(request, nick):
            return "Stopped."
        prefix = self._medium.prefix(request.place)
        return PrivateReply(
            f"There is nothing to stop. {prefix}reminders lists reminders to cancel."
        )

    async def more(self, request: R) -> Reply:
        """more: the rest of a long answer"""
        return await self._medium.more(request)

    async def ping(self, request: R) -> Reply:
        """ping: check that I am up"""
        return "pong"

    async def version(self, request: R) -> Reply:
        """version: my version and model"""
        catalog = self._medium.tendril.resources.catalog
        model = await catalog.shown_name(self._medium.model(request))
        return f"Terrarium {__version__}" + (f", model {model}" if model else "")

    async def _plain_command(self, request: R, reading: Reading) -> tuple[Command[R], R] | None:
        """Return the command that a question asks for in plain words, with the request
        for it; None if it asks for none, or may ask a capable model for more than that. Raises
        StorageError."""
        facts: list[str] = []
        if asks_for_fact(reading) and not request.who.bridged:
            facts = [fact.key for fact in await memory_of(self._medium, request).facts()]
        # By the profile of the model that would answer the question.
        own = self._medium.tendril.resources
        persona = own.configuration.prompts.personas.choose(self._medium.persona(request))
        resolve = own.catalog.resolve
        name = (
            request.model
            or await resolve(self._medium.model(request))
            or await resolve(persona.model)
        )
        profile = Profile.from_card(await own.catalog.card(name))
        found = plain_command(reading, profile, facts)
        return (self._known[found.name], replace(request, words=found.words)) if found else None

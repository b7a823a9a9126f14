"""The commands of people: the table of all of them, those about questions, conversations and the
bot itself, and commands in plain words.

What destroys anything needs the exact words of its command: other words for it only say how it is
done (`forget` without words).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, overload

from harnesses.core.commands.log import LogCommands, PeopleCommands, WaitingTells
from harnesses.core.commands.memory import MemoryCommands, PrivacyCommands, memory_of
from harnesses.core.commands.reminders import ReminderCommands, ResearchCommands
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
from harnesses.core.tendril.turn import Action
from harnesses.core.text import counted
from llm.client.profile import Profile
from llm.memory.room import fact_key, statement_in
from llm.reading.reading import Reading, Slots, speaks_of_all, strip_frame, words_beside_frame
from llm.reading.times import without_time
from terrarium import __version__

_PLAIN = {
    "help": ("about", "abilities"),
    "reminders": ("reminders", ""),
    "counts": ("stats", ""),
    "stop": ("stop", ""),
    "more": ("more", ""),
}
"""Commands that need no slot, by the kinds that ask for them."""

_TOLD = {"forget_me": ("forget", ""), "nolog": ("help", "nolog"), "clear": ("help", "clear")}
"""Commands that only say how something is destroyed."""

EXACT = {
    "memory": ("memory", ""),
    "notes": ("memory", ""),
    "reminders": ("reminders", ""),
    "ping": ("ping", ""),
    "version": ("version", ""),
    "stats": ("stats", ""),
    "help": ("help", ""),
    "commands": ("help", ""),
    "clear": ("clear", ""),
    "stop": ("stop", ""),
    "stop it": ("stop", ""),
    "more": ("more", ""),
    "forget our conversation": ("clear", ""),
    "forget this conversation": ("clear", ""),
}
"""Commands in their exact words, which need no reading."""

_ALARM = "the time is up"
_CERTAIN = {"all": 0.7, "whole sentences": 0.9}
"""The least certainty by `Profile.shortcuts`."""
_SURE = 0.9  # certainty from which what names no fact or reminder means all, or the only one


@dataclass(frozen=True, slots=True)
class PlainCommand:
    """A command by name, its argument, and the pieces of the sentence that were taken over; None
    if it was not looked at what the sentence says beside its kind."""

    name: str
    words: str = ""
    free: tuple[str, ...] | None = ()


def plain_command(
    reading: Reading, profile: Profile, facts: Sequence[str] = ()
) -> PlainCommand | None:
    """Return the command that a sentence asks for, None if it asks for none, lacks what that needs,
    or may ask a capable model for more than that. `facts` are the keys of the asker's own facts."""
    exact = EXACT.get(reading.text.casefold().strip(" .!"))
    if exact:
        return PlainCommand(*exact)
    if reading.certainty < _CERTAIN[profile.shortcuts]:
        return None
    found = _command(reading, facts)
    if found is None or (found.free is None and profile.shortcuts != "all"):
        return None
    return found if profile.may_shortcut(found.free or ()) else None


def asks_for_fact(reading: Reading) -> bool:
    """Return whether a sentence may ask for a fact about the asker, so that the keys of these are
    worth loading."""
    return reading.kind in ("recall", "forget_fact")


def _command(reading: Reading, facts: Sequence[str]) -> PlainCommand | None:
    kind, slots = reading.kind, reading.slots
    if kind in _TOLD:
        return PlainCommand(*_TOLD[kind], None)
    if kind in _PLAIN and not (kind == "counts" and (slots.topic or slots.person or slots.span)):
        return PlainCommand(*_PLAIN[kind], None)
    match kind:
        case "remind":
            return _reminder(reading.text, slots)
        case "schedule":
            order = without_time(slots.words)
            return PlainCommand("schedule", slots.words, (order,)) if order else None
        case "cancel_reminder":
            beside = words_beside_frame(reading.text, kind)
            what = beside if slots.number is None else str(slots.number)
            # Without a name or a number, the only reminder is meant; an unsure wish lists them.
            words = f"cancel {what}".rstrip() if what or reading.certainty >= _SURE else ""
            is_whole = beside == "all" or (slots.number is not None and beside == what)
            return PlainCommand("reminders", words, () if is_whole else None)
        case "remember" if slots.words:
            # "note: bring matches" is no fact "bring", as ".remember tea oolong" is one; but the
            # time zone, which reminders use, is a fact.
            note, key = f"that {slots.words}", fact_key(slots.words.partition(" ")[0])
            told = statement_in(note) if key != "timezone" else None
            is_note = told is not None and not told.key
            return PlainCommand("remember", note if is_note else slots.words, (slots.words,))
        case "recall":
            if key := _key_in(reading.text, facts):
                return PlainCommand("recall", key, None)
            # "which day am I on?" may ask the log of somebody who has asked for no facts.
            may_be_said = not facts and bool(words_beside_frame(reading.text, kind))
            is_sure = reading.certainty >= _SURE and not may_be_said
            return PlainCommand("memory", "", None) if is_sure else None
        case "forget_fact":
            key = _key_in(reading.text, facts)
            return PlainCommand("forget", key, None) if key else None
        case "about_bot":
            return PlainCommand("about", "identity", None)
    return None


def _reminder(said: str, slots: Slots) -> PlainCommand | None:
    """Return the reminder of what the sentence says at the time that it names, None without one."""
    # The command reminds the asker alone: "nudge dave tomorrow" is for the model.
    if slots.person and slots.words.casefold().startswith(slots.person.casefold()):
        return None
    # The frame may have taken the word before the day: "remind me on the 21st at 9 to go".
    whole = min(
        (slots.words, f"on {slots.words}"), key=lambda each: len(without_time(each) or each)
    )
    # "an alarm for 7" has neither the word before a time of day nor a text.
    for words in (whole, f"{slots.words} {_ALARM}", f"at {slots.words} {_ALARM}"):
        if text := without_time(words):
            break
    else:
        return None
    # "in 20 minutes tell me to leave": the frame stands behind the time.
    if words.split()[:1] == said.split()[:1] and words.endswith(text):
        bare = strip_frame(text, "remind") or text
        words, text = words.removesuffix(text) + bare, bare
    # A model that sees the talk knows of what else than an alarm, and can remind others.
    is_vague = text == _ALARM or speaks_of_all(said)
    return PlainCommand("remind", words, None if is_vague else (text,))


def _key_in(text: str, facts: Sequence[str]) -> str:
    """Return the longest key of a fact that stands in a text, "" if there is none."""
    said = _comparable(text)
    found = [key for key in facts if f" {_comparable(key).strip()} " in said]
    return max(found, key=len, default="")


def _comparable(text: str) -> str:
    words = text.lower().replace("_", " ").replace("favorite", "favourite").split()
    return f" {' '.join(word.strip('.,;:!?') for word in words)} "


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
        for name, command in admins.items():
            self.known[name] = _restrict(
                command, lambda request: request.admin, "Only admins may do that."
            )
        for names, needs, method in marked_commands(owner):

            def may(request: R, right: str = needs) -> bool:
                return not right or right in request.rights()

            given = _restrict(method, may, "You do not have permission to do that.")
            self.known |= dict.fromkeys(names, given)

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


def _restrict(command: Command[R], may: Callable[[R], bool], refusal: str) -> Command[R]:
    """Wrap a command so that it is refused to those who may not give it; the help text stays."""

    @functools.wraps(command)
    async def run_if_allowed(request: R) -> Reply:
        return await command(request) if may(request) else PrivateReply(refusal)

    return run_if_allowed


def marked_commands(owner: object) -> Iterator[tuple[Sequence[str], str, Command[Any]]]:
    """Yield the names, the needed right and the bound method of each `@command` of an object."""
    for name in dict.fromkeys(name for kind in type(owner).__mro__[::-1] for name in vars(kind)):
        if marks := getattr(inspect.getattr_static(owner, name), _MARK, None):
            yield (*marks, getattr(owner, name))

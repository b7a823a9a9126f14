"""What admins can ask of the bot on IRC; who is one, is checked before any of this runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from harnesses.irc.channel_settings import Behaviours, Choices, UnknownKey, key_of, value_of
from harnesses.irc.policy.command_request import Command, Notice, Request
from harnesses.irc.protocol.errors import InvalidMessage
from harnesses.irc.protocol.identity import mask_of
from llm.prompt.builder import Prompts
from storage.chat_log.event import Place
from storage.privacy.audit_log import Audit, Deed
from storage.queues.channel_settings import EVERYWHERE
from terrarium.config import ConfigError

_SHOWN = 60  # characters of a value in a list
_BACK = "default"


class Office(Protocol):
    """What admin commands need of the tendril."""

    behaviours: Behaviours
    choices: Choices
    audit: Audit
    prompts: Prompts

    def reload(self) -> str:
        """Read the configuration anew; what that has changed. Raises ConfigError."""

    async def was_set(self, place: Place, key: str) -> None:
        """A key of a folded place was set."""

    async def state(self, request: Request) -> str:
        """How the bot is."""


class AdminCommands:
    """The commands by name."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self.known: Mapping[str, Command] = {
            "join": self.join,
            "part": self.part,
            "ignore": self.ignore,
            "unignore": self.unignore,
            "set": self.set,
            "reload": self.reload,
            "status": self.status,
        }

    async def join(self, request: Request) -> str:
        """join #CHANNEL [KEY]: be there from now on"""
        channel, _, key = request.words.partition(" ")
        try:
            request.network.join(channel, key.strip())
        except InvalidMessage:
            return Notice("Which channel? Write: join #channel, and its key if it has one.")
        await self._office.choices.join(_folded(request, channel), key.strip())
        await self._note(request, "join", channel)
        return Notice(f"I am joining {channel}.")

    async def part(self, request: Request) -> str:
        """part [#CHANNEL]: leave, and stay away"""
        channel, _, reason = request.words.partition(" ")
        channel = channel or request.place.channel
        try:
            request.network.part(channel, reason)
        except InvalidMessage:
            return Notice("Which channel? Write: part #channel.")
        await self._office.choices.part(_folded(request, channel))
        await self._note(request, "part", channel, reason)
        return Notice(f"I have left {channel}.")

    async def ignore(self, request: Request) -> str:
        """ignore [NICK or MASK]: do not hear somebody; alone, who that is"""
        if not request.words:
            masks = self._office.choices.ignored(request.network.name)
            return Notice(f"Not heard: {', '.join(masks) or 'nobody'}.")
        mask = mask_of(request.words.split()[0])
        await self._office.choices.ignore(request.network.name, mask, on=True)
        await self._note(request, "ignore", mask)
        return Notice(f"I do not hear {mask} any more.")

    async def unignore(self, request: Request) -> str:
        """unignore NICK or MASK: hear somebody again"""
        if not request.words:
            return Notice("Whom? Write: unignore NICK, or the mask.")
        mask = mask_of(request.words.split()[0])
        if not await self._office.choices.ignore(request.network.name, mask, on=False):
            return Notice(f"{mask} is not on the list.")
        await self._note(request, "unignore", mask)
        return Notice(f"I hear {mask} again.")

    async def set(self, request: Request) -> str:
        """set [#CHANNEL] [KEY VALUE]: change a setting ("default": as before); alone, list them"""
        words = request.words.split(maxsplit=1)
        channel = EVERYWHERE
        if words and request.network.is_channel(words[0]):
            channel, words = words[0], " ".join(words[1:]).split(maxsplit=1)
        if not words:
            shown = request.place.channel if channel == EVERYWHERE else channel
            return Notice(self._listed(_folded(request, shown)))
        try:
            return Notice(await self._set(request, channel, words[0], " ".join(words[1:])))
        except (UnknownKey, ValueError) as error:
            return Notice(str(error))

    async def reload(self, request: Request) -> str:
        """reload: read the configuration file anew"""
        try:
            changed = self._office.reload()
        except ConfigError as error:
            return Notice(f"Nothing has changed, as the configuration is wrong: {error}")
        await self._note(request, "reload", "")
        return Notice(changed)

    async def status(self, request: Request) -> str:
        """status: how I am"""
        return await self._office.state(request)

    async def _set(self, request: Request, channel: str, word: str, text: str) -> str:
        key, place = key_of(word), _folded(request, channel)
        if not text:
            return f"{key} = {getattr(self._office.behaviours.of(place), key)}"
        value = None if text == _BACK else value_of(key, text)
        if key == "persona" and value:
            self._office.prompts.personas.require(value)
        await self._office.choices.put(place, key, None if value is None else str(value))
        self._office.behaviours.put(place, key, value)
        await self._office.was_set(place, key)
        await self._note(request, "set", key, text)
        where = "every channel of this network" if channel == EVERYWHERE else channel
        return f"{key} is {'as configured' if value is None else value} on {where}."

    def _listed(self, place: Place) -> str:
        behaviour = self._office.behaviours.of(place)
        sources = {key: how for key, (_, how) in self._office.behaviours.sources(place)}
        return "\n".join(
            f"{key} = {_short(getattr(behaviour, key))} ({sources.get(key, 'default')})"
            for key in type(behaviour).__slots__
        )

    async def _note(self, request: Request, action: str, target: str, reason: str = "") -> None:
        deed = Deed(request.place, str(request.who), action, target, reason)
        await self._office.audit.add(deed)


def _folded(request: Request, channel: str) -> Place:
    return Place(request.network.name, request.network.fold(channel))


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

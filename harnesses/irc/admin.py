"""Commands for admins. `Commands` refuses them to everybody else, so nothing here checks that."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog

from harnesses.core.commands.request import PrivateReply, Reply
from harnesses.irc.channel_settings import key_of, value_of
from harnesses.irc.protocol.errors import InvalidMessage
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.questions.unasked import UnaskedAnswers
from harnesses.irc.requests import IrcRequest, fold_place, mask_of
from harnesses.irc.services import BotServices
from harnesses.irc.transport.network import Network
from harnesses.irc.transport.networks import describe_problems
from storage.chat_log.event import Identity, channel_of_room
from storage.db.errors import StorageError
from storage.privacy.audit_log import AuditEntry
from storage.queues.channel_settings import EVERYWHERE
from terrarium.config import ConfigError

_log = structlog.get_logger()

_MAX_SHOWN = 60  # characters of a value in a list
_RESET = "default"  # the value that removes an override


def _shown(value: object) -> str:
    """Return a value of a setting as an admin types it; "-" for none."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "-" if value in (None, "") else str(value)


class AdminCommands:
    """The commands."""

    def __init__(self, services: BotServices, unasked: UnaskedAnswers) -> None:
        self._services, self._unasked = services, unasked

    async def join(self, request: IrcRequest) -> Reply:
        """join #CHANNEL [KEY]: join and stay there"""
        channel, _, key = request.words.partition(" ")
        try:
            request.network.join(channel, key.strip())
        except InvalidMessage:
            return PrivateReply("Which channel? Write: join #channel, and its key if it has one.")
        await self._services.live.set_joined(fold_place(request.network, channel), key.strip())
        await self._note(request, "join", channel)
        return PrivateReply(f"I am joining {channel}.")

    async def part(self, request: IrcRequest) -> Reply:
        """part [#CHANNEL]: leave, and stay away"""
        channel, _, reason = request.words.partition(" ")
        channel = channel or request.place.channel
        try:
            request.network.part(channel, reason)
        except InvalidMessage:
            return PrivateReply("Which channel? Write: part #channel.")
        await self._services.live.set_joined(fold_place(request.network, channel), None)
        await self._note(request, "part", channel, reason)
        return PrivateReply(f"I have left {channel}.")

    async def ignore(self, request: IrcRequest) -> Reply:
        """ignore [NICK or MASK]: ignore a person; without one, list who is ignored"""
        if not request.words:
            masks = self._services.live.ignored.get(request.network.name, ())
            return PrivateReply(f"Ignored: {', '.join(masks) or 'nobody'}.")
        mask = mask_of(request.words.split()[0])
        await self._services.live.set_ignored(request.network.name, mask, on=True)
        await self._note(request, "ignore", mask)
        return PrivateReply(f"I now ignore {mask}.")

    async def unignore(self, request: IrcRequest) -> Reply:
        """unignore NICK or MASK: stop ignoring them"""
        if not request.words:
            return PrivateReply("Whom? Write: unignore NICK, or the mask.")
        mask = mask_of(request.words.split()[0])
        if not await self._services.live.set_ignored(request.network.name, mask, on=False):
            return PrivateReply(f"{mask} is not on the list.")
        await self._note(request, "unignore", mask)
        return PrivateReply(f"I no longer ignore {mask}.")

    async def set(self, request: IrcRequest) -> Reply:
        """set [#CHANNEL|*] [KEY VALUE]: change a setting of this channel, or of all of the network
        ("default": as before); alone, list them"""
        network, channel = request.network, channel_of_room(request.place.channel)
        words = request.words.split(maxsplit=1)
        if words and (words[0] == EVERYWHERE or network.is_channel(words[0])):
            channel, words = words[0], " ".join(words[1:]).split(maxsplit=1)
        if not words:
            place = fold_place(network, channel)
            behaviour = self._services.live.resolve(place)
            sources = self._services.live.sources(place)
            shown = []
            for key in type(behaviour).__slots__:
                value, (_, source) = getattr(behaviour, key), sources.get(key, ("", "default"))
                shown.append(f"{key} {_shown(value)[:_MAX_SHOWN]} ({source})")
            return PrivateReply("; ".join(shown))
        if channel != EVERYWHERE and not network.is_channel(channel):
            return PrivateReply("For which channel? Write: set #CHANNEL KEY VALUE, or * for all.")
        try:
            return PrivateReply(await self._set(request, channel, words[0], " ".join(words[1:])))
        except ValueError as error:
            return PrivateReply(str(error))

    async def reload(self, request: IrcRequest) -> Reply:
        """reload: read the configuration file again"""
        try:
            changed = self._services.reload()
        except ConfigError as error:
            return PrivateReply(f"Nothing has changed: the configuration is invalid: {error}")
        await self._note(request, "reload", "")
        return PrivateReply(changed)

    async def status(self, request: IrcRequest) -> Reply:
        """status: my state, and what is wrong"""
        services, own, network = self._services, self._services.resources, request.network
        prompts, lag = own.configuration.prompts, await network.lag()
        up = timedelta(seconds=round(asyncio.get_running_loop().time() - services.started))
        parts = [
            f"up {up}",
            f"lag {f'{lag * 1000:.0f} ms' if lag is not None else 'unknown'}",
            f"{services.turns.pending} in the queue",
            f"model {services.live.resolve(request.place).model}",
            f"{own.accounting.today():,} tokens today",
            self._unasked.admin_summary(fold_place(network, request.place.channel)),
        ]
        if own.client.trouble:
            parts.append(f"trouble: {own.client.trouble}")
        if services.log.trouble:
            parts.append(f"the log cannot be written: {services.log.trouble}")
        parts += describe_problems(network)
        if away := prompts.mcp_servers.troubles():
            parts.append(f"MCP servers away: {', '.join(away)}")
        if prompts.errors:
            parts.append(f"broken: {', '.join(prompts.errors)}")
        return "; ".join(parts)

    async def _set(self, request: IrcRequest, channel: str, word: str, text: str) -> str:
        key, place = key_of(word), fold_place(request.network, channel)
        if not text:
            return f"{key} is {_shown(getattr(self._services.live.resolve(place), key))}."
        value = None if text == _RESET else value_of(key, text)
        if key == "persona" and value:
            self._services.resources.configuration.prompts.personas.require(value)
        await self._services.live.set_value(place, key, value)
        if key == "proactive" and channel != EVERYWHERE:  # it ends the silence after a kick there
            await self._unasked.mute(place, muted=False)
        await self._note(request, "set", key, text)
        where = "every channel of this network" if channel == EVERYWHERE else channel
        return f"{key} is {'as configured' if value is None else _shown(value)} on {where}."

    async def _note(self, request: IrcRequest, action: str, target: str, reason: str = "") -> None:
        entry = AuditEntry(request.place, str(request.who), action, target, reason)
        await self._services.audit.add(entry)


async def follow_invite(services: BotServices, network: Network, event: IrcEvent) -> None:
    """Join a channel to which an admin invites us, as `join` does; ignore others' invitations.

    Invitations to channels that we want to be in are followed by the session, and never get here.
    """
    # An invitation is no command, so `Commands` has not checked who sends it.
    channel = event.channel or ""
    who = Identity(event.nick, event.user or "", event.host or "", event.account)
    if not network.settings.join_on_invite or not services.policy.is_admin(network, who):
        _log.info("irc.invite_ignored", network=network.name)
        return
    network.join(channel)
    place = fold_place(network, channel)
    try:
        await services.live.set_joined(place, "")
        await services.audit.add(AuditEntry(place, str(who), "join", channel, "invited"))
    except StorageError as error:  # followed until a restart; nobody waits for a reply
        _log.error("irc.invite_not_kept", network=network.name, error=str(error))

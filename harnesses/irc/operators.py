"""Acts of a channel operator that an admin orders: by a command, or through the model as tools.

The model is open to prompt injection by everything it reads, so none of this relies on it. Whatever
orders it, the code checks that the admin is on the channel and that we are an operator there. A
tool also needs the right `OPERATE`, and the rule of `llm.tools.consent`: an order in the admin's
own words, which names the person, the mode or the topic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from pydantic import Field

from harnesses.core.commands.request import PrivateReply, Reply
from harnesses.irc.protocol.errors import InvalidMessage
from harnesses.irc.protocol.message import Message, sanitize
from harnesses.irc.requests import IrcRequest, mask_of
from harnesses.irc.services import BotServices
from llm.tools.consent import to_operate
from llm.tools.toolbox import ToolError, tool
from storage.chat_log.event import channel_of_room
from storage.privacy.audit_log import AuditEntry, AuditLog

OPERATE = "operate"
"""The right to have the model act as a channel operator."""

Reason = Annotated[
    str, Field(min_length=3, max_length=200, description="why, in words for the channel")
]
Nick = Annotated[str, Field(min_length=1, max_length=64, description="nick of who it is about")]

Words = tuple[str, str]
"""The first word after a command, and all others."""


class ChannelOperator:
    """Acts on one channel for the author of a request, and writes that into the audit log.

    The methods return what was done and raise ToolError; those for the model are its tools in the
    turn that answers the request.
    """

    def __init__(self, request: IrcRequest, audit: AuditLog, channel: str = "") -> None:
        self._request, self._audit = request, audit
        self._channel = channel or channel_of_room(request.place.channel)

    @tool(effect=True, needs=OPERATE, asked=to_operate("kick"))
    async def kick(self, nick: Nick, reason: Reason) -> str:
        """Remove somebody from this channel, when the person who asks you wants it."""
        reason = reason.strip() or f"asked by {self._request.nick}"
        return await self._do("kick", nick, reason, "KICK", self._channel, nick, reason)

    @tool(effect=True, needs=OPERATE, asked=to_operate("ban", "kickban"))
    async def ban(self, nick: Nick, reason: Reason) -> str:
        """Ban somebody from this channel, when the person who asks you wants it."""
        mask = await self._mask_of(nick)
        return await self._do("ban", mask, reason, "MODE", self._channel, "+b", mask)

    async def unban(self, who: str, reason: str) -> str:
        """Lift the ban of a nick or mask."""
        mask = await self._mask_of(who)
        return await self._do("unban", mask, reason, "MODE", self._channel, "-b", mask)

    @tool(effect=True, needs=OPERATE, asked=to_operate("topic"))
    async def topic(
        self,
        text: Annotated[str, Field(min_length=1, max_length=300, description="the new topic")],
        reason: Reason,
    ) -> str:
        """Set the topic of this channel, when the person who asks you wants it."""
        return await self._do("topic", text, reason, "TOPIC", self._channel, text)

    @tool(effect=True, needs=OPERATE, asked=to_operate())
    async def mode(
        self,
        change: Annotated[str, Field(pattern=r"^[+-][a-zA-Z]$", description="such as +m or -v")],
        reason: Reason,
        nick: Annotated[
            str, Field(max_length=64, description="whom it is for, if it is for somebody")
        ] = "",
    ) -> str:
        """Change a mode of this channel, when the person who asks you wants it."""
        return await self.change_modes(change, [nick] if nick else [], reason)

    async def change_modes(self, change: str, nicks: list[str], reason: str) -> str:
        """Change modes of the channel, or of people on it."""
        target = " ".join([change, *nicks])
        return await self._do("mode", target, reason, "MODE", self._channel, change, *nicks)

    async def _mask_of(self, who: str) -> str:
        """Return the mask to ban somebody by, who may be a nick or a mask."""
        network = self._request.network
        member = network.roster.member(self._channel, who)
        if not member and mask_of(who) == f"{who}!*@*":  # a nick, perhaps of one who was kicked
            member = await network.whois(who)
        # By host where it is known, as a nick is changed in a moment.
        return f"*!*@{member.host}" if member and member.host else mask_of(who)

    async def _do(self, action: str, target: str, reason: str, *message: str) -> str:
        network, who = self._request.network, self._request.who
        member = network.roster.member(self._channel, who.nick)
        # From another host, somebody else may have taken the admin's nick.
        if not member or (member.host or who.host) != who.host:
            raise ToolError(f"{who.nick} is not on {self._channel}")
        if not network.is_operator(self._channel):
            raise ToolError(f"I am not an operator of {self._channel}")
        parameters = (sanitize(text).replace("\n", " ") for text in message[1:])
        try:
            line = Message(message[0], tuple(parameters)).render()
        except InvalidMessage as error:
            raise ToolError(str(error)) from error
        await self._audit.add(AuditEntry(self._request.place, str(who), action, target, reason))
        await network.send_line(line)
        return f"done: {action} {target}"


class OperatorCommands:
    """The commands of admins that take us to be a channel operator.

    The channel is seen to change, so there is no reply unless it could not be done.
    """

    def __init__(self, services: BotServices) -> None:
        self._services = services

    async def kick(self, request: IrcRequest) -> Reply:
        """kick [#CHANNEL] NICK [REASON]: remove NICK from the channel"""
        return await self._run(request, lambda operator, words: operator.kick(*words))

    async def ban(self, request: IrcRequest) -> Reply:
        """ban [#CHANNEL] NICK or MASK: keep them out of the channel"""
        return await self._run(request, lambda operator, words: operator.ban(*words))

    async def kickban(self, request: IrcRequest) -> Reply:
        """kickban [#CHANNEL] NICK [REASON]: remove NICK, and keep them out"""

        async def both(operator: ChannelOperator, words: Words) -> str:
            await operator.ban(*words)
            return await operator.kick(*words)

        return await self._run(request, both)

    async def unban(self, request: IrcRequest) -> Reply:
        """unban [#CHANNEL] NICK or MASK: let them in again"""
        return await self._run(request, lambda operator, words: operator.unban(*words))

    async def op(self, request: IrcRequest) -> Reply:
        """op [#CHANNEL] [NICK]: make NICK, or you, an operator"""
        return await self._set_mode(request, "+o")

    async def deop(self, request: IrcRequest) -> Reply:
        """deop [#CHANNEL] [NICK]: take that back"""
        return await self._set_mode(request, "-o")

    async def voice(self, request: IrcRequest) -> Reply:
        """voice [#CHANNEL] [NICK]: give NICK, or you, voice"""
        return await self._set_mode(request, "+v")

    async def devoice(self, request: IrcRequest) -> Reply:
        """devoice [#CHANNEL] [NICK]: take that back"""
        return await self._set_mode(request, "-v")

    async def mode(self, request: IrcRequest) -> Reply:
        """mode [#CHANNEL] CHANGE [NICK ...]: change modes, as in mode +m"""
        return await self._run(
            request, lambda operator, words: operator.change_modes(words[0], words[1].split(), "")
        )

    async def topic(self, request: IrcRequest) -> Reply:
        """topic [#CHANNEL] TEXT: set the topic"""
        return await self._run(
            request, lambda operator, words: operator.topic(" ".join(words).strip(), "")
        )

    async def _set_mode(self, request: IrcRequest, change: str) -> Reply:
        return await self._run(
            request,
            lambda operator, words: operator.change_modes(change, [words[0]], ""),
            default=request.nick,
        )

    async def _run(
        self,
        request: IrcRequest,
        act: Callable[[ChannelOperator, Words], Awaitable[str]],
        default: str = "",
    ) -> Reply:
        """Act with the first word after the channel, else `default`, and the others."""
        channel, words = "", request.words
        if request.network.is_channel(words.partition(" ")[0]):
            channel, _, words = words.partition(" ")
        elif request.private and not request.network.is_channel(request.place.channel):
            return PrivateReply("On which channel? Write its name first.")
        first, _, others = (words.strip() or default).partition(" ")
        if not first:
            return PrivateReply("Whom, or what? Write that after the command.")
        try:
            await act(ChannelOperator(request, self._services.audit, channel), (first, others))
        except ToolError as error:
            return PrivateReply(f"Not done: {error}.")
        return ""

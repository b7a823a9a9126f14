"""IRC tools by which the model acts as a channel operator for an admin.

The model is open to prompt injection by everything it reads, so none of this relies on it. When a
tool runs, the code checks that the person still has the right `OPERATE` and is still in the
channel, and that we are an operator; the rules of `llm.tools.consent` require that the admin's own
words order it. Otherwise the model can only ask the admin to write just that.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harnesses.irc.policy.requests import CommandRequest
from harnesses.irc.protocol.errors import InvalidMessage
from harnesses.irc.protocol.message import Message
from harnesses.irc.replies.sender import sanitize
from llm.tools.consent import to_ban, to_kick, to_mode, to_set_topic
from llm.tools.toolbox import ToolError, tool
from storage.privacy.audit_log import AuditEntry, AuditLog

OPERATE = "operate"
"""The right to have the model act as a channel operator."""

Reason = Annotated[
    str, Field(min_length=3, max_length=200, description="why, in words for the channel")
]
Nick = Annotated[str, Field(min_length=1, max_length=64, description="nick of who it is about")]


class AdminTools:
    """The operator tools of the turn that answers `request`."""

    def __init__(self, request: CommandRequest, audit: AuditLog) -> None:
        self._request, self._audit = request, audit

    @tool(effect=True, needs=OPERATE, asked=to_kick)
    async def kick(self, nick: Nick, reason: Reason) -> str:
        """Remove somebody from this channel, when the person who asks you wants it."""
        return await self._do("kick", nick, reason, "KICK", self._channel, nick, reason)

    @tool(effect=True, needs=OPERATE, asked=to_ban)
    async def ban(self, nick: Nick, reason: Reason) -> str:
        """Ban somebody from this channel, when the person who asks you wants it."""
        member = self._request.network.roster.member(self._channel, nick)
        # By host where it is known, as a nick is changed in a moment.
        mask = f"*!*@{member.host}" if member and member.host else f"{nick}!*@*"
        return await self._do("ban", mask, reason, "MODE", self._channel, "+b", mask)

    @tool(effect=True, needs=OPERATE, asked=to_set_topic)
    async def topic(
        self,
        text: Annotated[str, Field(min_length=1, max_length=300, description="the new topic")],
        reason: Reason,
    ) -> str:
        """Set the topic of this channel, when the person who asks you wants it."""
        return await self._do("topic", text, reason, "TOPIC", self._channel, text)

    @tool(effect=True, needs=OPERATE, asked=to_mode)
    async def mode(
        self,
        change: Annotated[str, Field(pattern=r"^[+-][a-zA-Z]$", description="such as +m or -v")],
        reason: Reason,
        nick: Annotated[
            str, Field(max_length=64, description="whom it is for, if it is for somebody")
        ] = "",
    ) -> str:
        """Change a mode of this channel, when the person who asks you wants it."""
        target = f"{change} {nick}".strip()
        given = (nick,) if nick else ()
        return await self._do("mode", target, reason, "MODE", self._channel, change, *given)

    @property
    def _channel(self) -> str:
        return self._request.place.channel

    async def _do(self, action: str, target: str, reason: str, *message: str) -> str:
        """Send the IRC message, if the admin is still there and we are an operator.

        It is in the audit log before it is sent. Raises ToolError.
        """
        network, who = self._request.network, self._request.who
        member = network.roster.member(self._channel, who.nick)
        # From another host, somebody else may have taken the admin's nick.
        if not member or (member.host or who.host) != who.host:
            raise ToolError(f"not done: {who.nick} is not here any more")
        if not network.is_operator(self._channel):
            raise ToolError("not done: I am no operator of this channel")
        try:
            line = Message(message[0], tuple(map(_one_line, message[1:]))).render()
        except InvalidMessage as error:
            raise ToolError(f"not done: {error}") from error
        await self._audit.add(AuditEntry(self._request.place, str(who), action, target, reason))
        await network.send_line(line)
        return f"done: {action} {target}"


def _one_line(text: str) -> str:
    return sanitize(text).replace("\n", " ")

"""IRC tools by which the model acts as a channel operator for an admin.

The model is open to prompt injection by everything it reads, so none of this relies on it. When a
tool runs, the code checks that the person still has the right `OPERATE` and is still in the
channel, and that we are an operator. And the admin's own question must order the action
and name its target, order the mode, or have the words of the topic. Otherwise the model can only
ask the admin to write just that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from harnesses.irc.policy.requests import CommandRequest
from harnesses.irc.protocol.errors import InvalidMessage
from harnesses.irc.protocol.message import Message
from harnesses.irc.replies.sender import sanitize
from llm.tools.toolbox import ToolError, tool
from storage.privacy.audit_log import AuditEntry, AuditLog

OPERATE = "operate"
"""The right to have the model act as a channel operator."""

Reason = Annotated[
    str, Field(min_length=3, max_length=200, description="why, in words for the channel")
]
Nick = Annotated[str, Field(min_length=1, max_length=64, description="nick of who it is about")]


_KICK = "kick|kickban|remove|throw|eject|boot"
_BAN = "ban|kickban|akick|block"

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
# A talk about kicks is no order to kick: "why was bob kicked?", "never ban bob".
_NO_ORDER = re.compile(
    r"\s*(?:(?:and|but|so|hey|please)\W+)?(?:who|what|when|where|why|how|which|if|did|do|does|was|were"
    r"|is|are|has|have|had|should|shall|may|might|must)\w*\b"
    r"|.*\b(?:not|never|cannot|\w+n['’]t|(?:do|ca|wo|should|would|could|must)nt)\b",
    re.IGNORECASE,
)
_REQUEST = r"\b(?:can|could|will|would) you(?: please| just| now)?"
_ORDER = rf"(?:\A|[,;]|{_REQUEST}|\b(?:please|pls|and|then|now|also|just))\s*(?:{{verbs}})\b"


class AdminTools:
    """The operator tools of the turn that answers `request`."""

    def __init__(self, request: CommandRequest, audit: AuditLog) -> None:
        self._request, self._audit = request, audit

    @tool(effect=True, needs=OPERATE)
    async def kick(self, nick: Nick, reason: Reason) -> str:
        """Remove somebody from this channel, when the person who asks you wants it."""
        self._require_named(nick)
        self._require_order(_KICK, "kick", nick)
        return await self._do("kick", nick, reason, "KICK", self._channel, nick, reason)

    @tool(effect=True, needs=OPERATE)
    async def ban(self, nick: Nick, reason: Reason) -> str:
        """Ban somebody from this channel, when the person who asks you wants it."""
        self._require_named(nick)
        self._require_order(_BAN, "ban", nick)
        member = self._request.network.member(self._channel, nick)
        # By host where it is known, as a nick is changed in a moment.
        mask = f"*!*@{member.host}" if member and member.host else f"{nick}!*@*"
        return await self._do("ban", mask, reason, "MODE", self._channel, "+b", mask)

    @tool(effect=True, needs=OPERATE)
    async def topic(
        self,
        text: Annotated[str, Field(min_length=1, max_length=300, description="the new topic")],
        reason: Reason,
    ) -> str:
        """Set the topic of this channel, when the person who asks you wants it."""
        if not _phrase(text).search(self._request.words):
            raise self._not_asked(f"set the topic to: {text}")
        return await self._do("topic", text, reason, "TOPIC", self._channel, text)

    @tool(effect=True, needs=OPERATE)
    async def mode(
        self,
        change: Annotated[str, Field(pattern=r"^[+-][a-zA-Z]$", description="such as +m or -v")],
        reason: Reason,
        nick: Annotated[
            str, Field(max_length=64, description="whom it is for, if it is for somebody")
        ] = "",
    ) -> str:
        """Change a mode of this channel, when the person who asks you wants it."""
        if nick:
            self._require_named(nick)
        target = f"{change} {nick}".strip()
        if not is_mode_order(self._request.words, change, nick):
            raise self._not_asked(f"set mode {target}")
        given = (nick,) if nick else ()
        return await self._do("mode", target, reason, "MODE", self._channel, change, *given)

    @property
    def _channel(self) -> str:
        return self._request.place.channel

    def _require_named(self, nick: str) -> None:
        if not _mention(nick).search(self._request.words):
            raise ToolError(f"not done: {self._request.nick} has not named {nick}")

    def _require_order(self, verbs: str, action: str, nick: str) -> None:
        """Raise ToolError, with the order to write, unless the question is an order with one of
        these verbs."""
        if not is_order(self._request.words, verbs, nick):
            raise self._not_asked(f"{action} {nick}")

    def _not_asked(self, confirmation: str) -> ToolError:
        return ToolError(
            f"not done: {self._request.nick} has not asked for it in so many words; tell them"
            f" to write, if they want it: {_one_line(confirmation)}"
        )

    async def _do(self, action: str, target: str, reason: str, *message: str) -> str:
        """Send the IRC message, if the admin is still there and we are an operator.

        It is in the audit log before it is sent. Raises ToolError.
        """
        network, who = self._request.network, self._request.who
        member = network.member(self._channel, who.nick)
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


def is_order(text: str, verbs: str, nick: str) -> bool:
    """Return whether a sentence of a text is an order with one of these verbs, `a|b`.

    The verb is an imperative, or follows "can you". Doubtful sentences are no orders: then the
    admin is only asked to write one. `nick`, whom it is about, is a name and not a word of the
    sentence, even if it is "never".
    """
    order = re.compile(_ORDER.format(verbs=verbs), re.IGNORECASE)
    return any(order.search(sentence.lstrip()) for sentence in _possible_orders(text, nick))


def is_mode_order(text: str, change: str, nick: str) -> bool:
    """Return whether a sentence of a text is an order with a mode change such as "+m"; see
    `is_order`."""
    # The letter after its own sign, alone or among others, as in "+mt".
    letters = re.compile(rf"(?<!\S)[{change[0]}][a-zA-Z]*{change[1]}")
    return any(letters.search(sentence) for sentence in _possible_orders(text, nick))


def _possible_orders(text: str, nick: str) -> Iterator[str]:
    """Yield the sentences of a text that are neither negated nor a question other than "can you".
    `nick` is masked, unless it is empty."""
    masked = _mention(nick).sub("x", text) if nick else text
    for sentence in _SENTENCE.findall(masked):
        if _NO_ORDER.match(sentence):
            continue
        if not sentence.endswith("?") or re.search(_REQUEST, sentence, re.IGNORECASE):
            yield sentence


def _mention(nick: str) -> re.Pattern[str]:
    """Return a pattern that matches a nick, in any case, where it stands by itself."""
    # Not `\b`: nicks may begin and end with brackets and other characters that are no words'.
    return re.compile(rf"(?<![^\s,:;.!?'\"@]){re.escape(nick)}(?![^\s,:;.!?'\"])", re.IGNORECASE)


def _phrase(text: str) -> re.Pattern[str]:
    """Return a pattern that matches a text in any case, with any white space between words."""
    return re.compile(r"\s+".join(map(re.escape, text.split())), re.IGNORECASE)


def _one_line(text: str) -> str:
    return sanitize(text).replace("\n", " ")

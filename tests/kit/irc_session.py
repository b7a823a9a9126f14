"""IRC session without a connection, fed with lines of a server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.message import Receipt, parse
from harnesses.irc.session import handlers, registration
from harnesses.irc.session.session import QueuedMessage, Session
from harnesses.irc.settings import NetworkSettings

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WELCOME = (
    ":s 001 Terra :Welcome to the Net Terra!~t@host.example",
    ":s 005 Terra CASEMAPPING=rfc1459 PREFIX=(qohv)~@%+ STATUSMSG=@+ CHANTYPES=# :are supported",
    ":s 422 Terra :No MOTD",
)
IN_CHANNEL = (
    *WELCOME,
    ":Terra!~t@host.example JOIN #c",
    ":s 353 Terra = #c :Terra ~@owner %alice!al@h.example",
    ":s 366 Terra #c :End of NAMES list",
)


class Story:
    """A session, its clock and its output.

    `first` has the lines sent at the start, `later` the messages that the session delays.
    """

    def __init__(
        self, channels: Iterable[str] = ("#c",), encrypted: bool = False, **settings: Any
    ) -> None:
        self.now = NOON
        self.wanted = dict.fromkeys(channels, "")
        fields = NetworkSettings(server="irc.example", **settings)
        self.receipts: list[tuple[str, Receipt]] = []
        self.session = Session("net", fields, self.wanted, lambda: self.now, encrypted)
        registration.start(self.session)
        begun = self.outgoing()
        self.first = [out.message.render() for out in begun if not out.delay]
        self.later = [out for out in begun if out.delay]

    def outgoing(self, *lines: str) -> list[QueuedMessage]:
        """Feed lines; return what the session sends then, with its delays."""
        self.feed(*lines)
        return self.session.pop_outgoing()

    def reply(self, *lines: str) -> list[str]:
        """Feed lines; return the lines that the session sends then, now or later."""
        return [outgoing.message.render() for outgoing in self.outgoing(*lines)]

    def sent(self) -> list[str]:
        return [outgoing.message.render() for outgoing in self.session.pop_outgoing()]

    def feed(self, *lines: str) -> list[IrcEvent]:
        messages = [parse(line) for line in lines]
        return [event for m in messages if m for event in handlers.receive(self.session, m)]

    def track(self, target: str) -> tuple[str, dict[str, str]]:
        """Track a line; return its label, under which `receipts` gets its receipt, and its tags."""
        found = self.receipts
        label = self.session.new_label()
        tags = self.session.track(
            target, lambda receipt: found.append((label, replace(receipt, nick=""))), label
        )
        return label, dict(tags)

    def members(self, channel: str = "#c") -> set[str]:
        known = self.session.roster.channel(channel)
        return {member.nick for member in known.members.values()} if known else set()


def inside(*lines: str) -> Story:
    story = Story()
    story.feed(*IN_CHANNEL, *lines)
    story.sent()
    return story


def echoing() -> Story:
    story = Story()
    names = "batch echo-message labeled-response message-tags"
    story.feed(f"CAP * LS :{names}")
    assert story.sent() == [f"CAP REQ :{names}"]
    story.feed(f"CAP * ACK :{names}", *IN_CHANNEL)
    return story

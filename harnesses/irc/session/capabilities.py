"""Capability negotiation, with what hangs on it: SASL before it ends, STS before anything else.

https://ircv3.net/specs/extensions/capability-negotiation. A server that does not know CAP answers
421 or nothing at all, and welcomes us all the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from harnesses.irc.protocol.message import Message
from harnesses.irc.protocol.multiline import MULTILINE
from harnesses.irc.session.sasl import Sasl
from harnesses.irc.session.sts import Sts

WANTED = frozenset(
    (
        "server-time", "message-tags", "batch", "msgid", "account-tag", "account-notify",
        "extended-join", "chghost", "multi-prefix", "userhost-in-names", "cap-notify",
        "standard-replies",
    )
)  # fmt: skip
"""Capabilities that we know what to do with; only what a server offers is requested."""

ECHO = frozenset({"echo-message", "labeled-response"})
"""Of use only together: an echo must be told from a line that somebody else says in our name."""

LINES = frozenset({MULTILINE, "batch", "message-tags"})
"""A message of several lines is a batch, with tags."""


_BOUNCERS = ("znc.in/", "soju.im/")


class CapabilityNegotiation:
    """CAP negotiation. `enabled` holds what the server has acknowledged.

    `sasl` is requested when it has credentials, also where the server offers none of our
    mechanisms: it may offer others later. `sts` is what the server announced, if it did.
    """

    def __init__(self, sasl: Sasl, encrypted: bool) -> None:
        self.enabled: set[str] = set()
        self.listed = self.has_ended = False
        self.sts: Sts | None = None
        self._sasl, self._encrypted = sasl, encrypted
        self._offered: dict[str, str] = {}
        self._unanswered = 0

    @property
    def upgrade(self) -> int | None:
        """The port on which the server wants TLS; nothing more may be said in the clear then."""
        return self.sts.port if self.sts and not self._encrypted else None

    @property
    def of_bouncer(self) -> bool:
        """True when it is a bouncer that we speak to, by the names of what it offers."""
        return any(name.startswith(_BOUNCERS) for name in self._offered)

    def start(self) -> Message:
        """Return the first line of a connection."""
        return Message("CAP", ("LS", "302"))

    def receive(self, message: Message) -> list[Message]:
        """Take a CAP message of the server; return the answers."""
        pairs = (word.partition("=") for word in message.params[-1].split())
        named = {name: value for name, _, value in pairs}
        match message.param(1).upper():
            case "LS":
                self._offered.update(named)
                if message.param(2) == "*" and len(message.params) > 3:
                    return []  # more of the list follows
                self.listed = True
                return self._request_supported(self._offered)
            case "NEW":
                self._offered.update(named)
                return self._request_supported(named)
            case "DEL":
                self.enabled.difference_update(named)
            case "ACK":
                # CAP END waits for every REQ: the server may answer them in any number of lines.
                self._unanswered -= 1
                return self._on_ack(named) + self._end()
            case "NAK":
                # One refused name refuses the whole line: ask for each by itself.
                again = list(named) if len(named) > 1 else []
                self._unanswered += len(again) - 1
                return [Message("CAP", ("REQ", name)) for name in again] + self._end()
        return []

    def authenticate(self, message: Message) -> list[Message]:
        """Take a message of SASL; return the answers, with the end of it all if that was it."""
        answers = self._sasl.receive(message)
        return answers + self._end() if self.listed else answers

    def on_welcome(self) -> None:
        """The server has let us in; there is nothing to end any more."""
        self.has_ended = True

    def _request_supported(self, named: dict[str, str]) -> list[Message]:
        if "sts" in named:
            self.sts = Sts.parse(named["sts"])
        return [] if self.upgrade else self._ask(named)

    def _ask(self, names: Iterable[str]) -> list[Message]:
        known = WANTED | {"sasl"} if self._sasl.wanted else WANTED
        for names_together in (ECHO, LINES):
            known |= names_together if self._offered.keys() >= names_together else frozenset()
        wanted = sorted(known.intersection(names) - self.enabled)
        if not wanted:
            return self._end()
        self._unanswered += 1
        return [Message("CAP", ("REQ", " ".join(wanted)))]

    def _on_ack(self, names: Iterable[str]) -> list[Message]:
        for name in names:
            if name.startswith("-"):  # an ACK may also take a capability back
                self.enabled.discard(name[1:])
            else:
                self.enabled.add(name)
        if "sasl" in names and not self._sasl.account:
            return self._sasl.start(self._offered.get("sasl", ""))
        return []

    def _end(self) -> list[Message]:
        if self.has_ended or self._unanswered > 0 or self._sasl.running:
            return []
        self.has_ended = True
        return [Message("CAP", ("END",))]

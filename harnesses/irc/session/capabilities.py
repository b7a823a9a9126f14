"""IRCv3 capability negotiation, with STS, which may abort it, and SASL, which must finish first.

https://ircv3.net/specs/extensions/capability-negotiation. A server without CAP answers 421 or
nothing, and registers us all the same.
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
"""Capabilities that we support; those that a server offers are requested."""

ECHO = frozenset({"echo-message", "labeled-response"})
"""Requested only together: without a label, the echo of a line of ours cannot be told from a line
that another client of the same bouncer sends in our name."""

LINES = frozenset({MULTILINE, "batch", "message-tags"})
"""Requested only together: a multiline message is a batch, and its lines are tagged."""


_BOUNCERS = ("znc.in/", "soju.im/")


class CapabilityNegotiation:
    """The state of the capability negotiation.

    `enabled` holds the acknowledged capabilities, `sts` the server's announcement, if any. `listed`
    is set when the list of capabilities is complete, `has_ended` when CAP END is sent. `sasl` is
    requested if we have credentials, even if the server lists none of our mechanisms: it may offer
    others later.
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
        """The port to reconnect to with TLS, if STS demands it; else None.

        Nothing more may be sent on the unencrypted connection then.
        """
        return self.sts.port if self.sts and not self._encrypted else None

    @property
    def of_bouncer(self) -> bool:
        """True if we are connected to a bouncer, judging by its vendor capabilities."""
        return any(name.startswith(_BOUNCERS) for name in self._offered)

    def start(self) -> Message:
        """Return the message that begins the negotiation."""
        # A server that knows CAP suspends the registration until CAP END.
        return Message("CAP", ("LS", "302"))

    def receive(self, message: Message) -> list[Message]:
        """Process a CAP message; return the messages to send."""
        pairs = (word.partition("=") for word in message.params[-1].split())
        named = {name: value for name, _, value in pairs}
        match message.param(1).upper():
            case "LS":
                self._offered.update(named)
                if message.param(2) == "*" and len(message.params) > 3:
                    return []  # the list continues in another line
                self.listed = True
                return self._request_supported(self._offered)
            case "NEW":
                self._offered.update(named)
                return self._request_supported(named)
            case "DEL":
                self.enabled.difference_update(named)
            case "ACK":
                # CAP END waits until every REQ is answered: ending earlier would complete the
                # registration without SASL.
                self._unanswered -= 1
                return self._on_ack(named) + self._end()
            case "NAK":
                # A NAK rejects all capabilities of its REQ; request each of them separately.
                again = list(named) if len(named) > 1 else []
                self._unanswered += len(again) - 1
                return [Message("CAP", ("REQ", name)) for name in again] + self._end()
        return []

    def authenticate(self, message: Message) -> list[Message]:
        """Process a SASL message; return the messages to send, with CAP END once SASL is over."""
        answers = self._sasl.receive(message)
        return answers + self._end() if self.listed else answers

    def on_welcome(self) -> None:
        """Record that the server has registered us, so that CAP END is no longer due."""
        self.has_ended = True

    def _request_supported(self, named: dict[str, str]) -> list[Message]:
        # STS is only announced: a client must not request it.
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
            if name.startswith("-"):  # an ACK with "-" disables a capability
                self.enabled.discard(name[1:])
            else:
                self.enabled.add(name)
        if "sasl" in names and not self._sasl.succeeded:
            return self._sasl.start(self._offered.get("sasl", ""))
        return []

    def _end(self) -> list[Message]:
        if self.has_ended or self._unanswered > 0 or self._sasl.running:
            return []
        self.has_ended = True
        return [Message("CAP", ("END",))]

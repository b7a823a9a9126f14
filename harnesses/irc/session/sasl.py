"""SASL authentication on IRC, which tries one mechanism after the other.

https://ircv3.net/specs/extensions/sasl-3.2. No network I/O. The mechanisms are PLAIN (RFC 4616),
EXTERNAL (RFC 4422, appendix A), SCRAM (RFC 5802, RFC 7677), and ECDSA-NIST256P-CHALLENGE as Atheme
defines it: the server's challenge of 32 bytes is signed as if it were a SHA-256 digest.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import scramp
import structlog
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from harnesses.irc.protocol.errors import SaslFailed
from harnesses.irc.protocol.message import Message
from harnesses.irc.settings import NetworkSettings

log = structlog.get_logger()

CHUNK_SIZE = 400
"""Maximum base64 characters of one AUTHENTICATE. A shorter chunk ends the message; after a full one
that is the last, an empty chunk (`+`) does."""

MAX_MESSAGE_SIZE = 64 * 1024
"""Maximum base64 characters of a server's message; no mechanism needs a tenth of that."""

MAX_ITERATIONS = 1_000_000
"""The maximum iteration count that a SCRAM server may demand; more would block our event loop for
seconds. scramp itself refuses less than 4096 (RFC 7677), and salts of less than 12 bytes."""


class Mechanism(Protocol):
    """The client side of one exchange with one mechanism."""

    @property
    def complete(self) -> bool:
        """True if the server may report success now; SCRAM needs the server's proof first."""

    def answer(self, challenge: bytes) -> bytes:
        """Return the response to a challenge; the first challenge is empty. Raises SaslFailed."""


MechanismFactories = Mapping[str, Callable[[], Mechanism]]
"""Factories of mechanisms by name, in order of preference; they may raise OSError or ValueError."""


def mechanisms(settings: NetworkSettings, encrypted: bool) -> MechanismFactories:
    """Return the mechanisms that we have credentials for, in the order of `sasl`, else by strength.

    PLAIN transmits the password itself, so it is used over an unencrypted connection only if `sasl`
    names it.
    """
    user = settings.sasl_username or ""
    password = settings.sasl_password.get_secret_value() if settings.sasl_password else None
    factories: dict[str, Callable[[], Mechanism]] = {}
    if settings.tls_cert and encrypted:
        factories["EXTERNAL"] = lambda: _SingleMessageMechanism(user)
    if user and settings.sasl_key:
        key = settings.sasl_key.get_secret_value()
        factories["ECDSA-NIST256P-CHALLENGE"] = lambda: _Ecdsa(user, key)
    if user and password is not None:
        factories["SCRAM-SHA-512"] = lambda: Scram("SCRAM-SHA-512", user, password)
        factories["SCRAM-SHA-256"] = lambda: Scram("SCRAM-SHA-256", user, password)
        if encrypted or settings.sasl:
            factories["PLAIN"] = lambda: _SingleMessageMechanism(f"{user}\0{user}\0{password}")
    return {name: factories[name] for name in settings.sasl or factories if name in factories}


class _SingleMessageMechanism:
    """A mechanism whose client sends a single message.

    `words` is the authorisation identity for EXTERNAL, and `authzid NUL authcid NUL password` for
    PLAIN.
    """

    complete = True

    def __init__(self, words: str) -> None:
        self._words = words

    def answer(self, challenge: bytes) -> bytes:
        if challenge:
            raise SaslFailed("the server asks for more than the mechanism has")
        return self._words.encode()


class _Ecdsa:
    """ECDSA-NIST256P-CHALLENGE; `key` is a private key in PEM or the path of its file."""

    complete = True

    def __init__(self, user: str, key: str) -> None:
        pem = key.encode() if "-----BEGIN" in key else Path(key).read_bytes()
        loaded = load_pem_private_key(pem, None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ValueError("sasl_key is not a key of an elliptic curve")
        self._user, self._key = user, loaded

    def answer(self, challenge: bytes) -> bytes:
        if not challenge:
            return self._user.encode()
        if len(challenge) != SHA256.digest_size:
            raise SaslFailed(f"a challenge of {len(challenge)} bytes is invalid for this mechanism")
        return self._key.sign(challenge, ec.ECDSA(Prehashed(SHA256())))


class Scram:
    """SCRAM: mutual proof of knowing a password, which is never transmitted.

    Implemented by scramp; without channel binding, which no IRC services offer. `mechanism` is
    SCRAM-SHA-256 or SCRAM-SHA-512; `nonce` replaces the random client nonce, for the RFC's test
    vectors. Raises ValueError if SASLprep (RFC 4013) does not allow the name or the password.
    """

    def __init__(self, mechanism: str, username: str, password: str, nonce: str = "") -> None:
        try:
            self._client = scramp.ScramClient(
                [mechanism], username, password, c_nonce=nonce or None
            )
        except scramp.ScramException as error:
            raise ValueError(f"SASL does not allow the name or password: {error}") from error
        self._received = 0
        self.complete = False  # set once the server's signature has been verified

    def answer(self, challenge: bytes) -> bytes:
        """Return the response to a message of the server; its first message is empty.

        Raises SaslFailed if the server violates the protocol or does not know the password.
        """
        self._received += 1
        reply: str = ""
        try:
            if self._received == 1:
                reply = self._client.get_client_first()
            elif self._received == 2:
                self._client.set_server_first(challenge.decode())
                if int(self._client.iterations) > MAX_ITERATIONS:
                    raise SaslFailed(f"the server asks for {self._client.iterations} iterations")
                reply = self._client.get_client_final()
            else:
                self._client.set_server_final(challenge.decode())  # verifies the server's signature
                self.complete = True
        except (scramp.ScramException, UnicodeDecodeError) as error:
            raise SaslFailed(f"the server's part of SCRAM is wrong: {error}") from error
        return reply.encode()


class Sasl:
    """The SASL authentication of one connection.

    `account` is the services account that the server says we are logged in to, or None: a login to
    NickServ is reported in the same way. `succeeded` is True once an exchange of ours has ended
    with success. If a mechanism is refused the next one is tried. A server that violates a
    mechanism's protocol may be an impostor: `server_untrusted` is then set, no further mechanism is
    tried, and no password may be sent to it. `failure` is the reason of the last failure, or "".
    """

    def __init__(self, factories: MechanismFactories, network: str = "") -> None:
        self._factories, self._network = factories, network
        self._left: list[str] = []
        self._mechanism: Mechanism | None = None
        self._received = ""
        self.account: str | None = None
        self.succeeded = False
        self.server_untrusted = False
        self.failure = ""

    @property
    def is_wanted(self) -> bool:
        """True if we have credentials for any mechanism."""
        return bool(self._factories)

    @property
    def is_running(self) -> bool:
        """True while an exchange is in progress."""
        return self._mechanism is not None

    def start(self, offered: str) -> list[Message]:
        """Begin; `offered` are the server's mechanisms, comma-separated, "" if it lists none."""
        names = offered.upper().split(",")
        self._left = [name for name in self._factories if not offered or name in names]
        if not self._left:
            self._warn("the server offers none of our mechanisms", offered=offered)
        return self._next()

    def receive(self, message: Message) -> list[Message]:
        """Process an AUTHENTICATE or a SASL numeric; return the messages to send."""
        match message.command:
            case "AUTHENTICATE" if self._mechanism:
                return self._answer_challenge(self._mechanism, message.param(0))
            case "900" if self._may_succeed():
                self.account = message.param(2) or None
            case "901":
                self.account, self.succeeded = None, False
            case "903" if self._mechanism and self._may_succeed():
                self._mechanism, self._left, self.succeeded = None, [], True
            case "907" if self._may_succeed():  # ERR_SASLALREADY
                self._mechanism, self._left = None, []
            case "908":  # RPL_SASLMECHS: the supported mechanisms; the refusal (904) follows
                offered = message.param(1).upper().split(",")
                self._left = [name for name in self._left if name in offered]
            case "902" | "904" | "905" | "906" if self._mechanism:
                self._warn(message.param(-1), numeric=message.command)
                return self._next()
        return []

    def _next(self) -> list[Message]:
        self._mechanism = None
        while self._left and not self.server_untrusted:
            name = self._left.pop(0)
            try:
                self._mechanism = self._factories[name]()
            except (OSError, ValueError) as error:
                self._warn(str(error), mechanism=name)
                continue
            return [Message("AUTHENTICATE", (name,))]
        return []

    def _answer_challenge(self, mechanism: Mechanism, chunk: str) -> list[Message]:
        # A lone "+" is an empty chunk: an empty message, or the end of one that is a multiple of
        # 400 characters long.
        self._received += chunk.removeprefix("+") if len(chunk) == 1 else chunk
        if len(chunk) == CHUNK_SIZE and len(self._received) < MAX_MESSAGE_SIZE:
            return []
        text, self._received = self._received, ""
        try:
            answer = base64.b64encode(mechanism.answer(base64.b64decode(text, validate=True)))
        except (SaslFailed, ValueError) as error:
            self._warn(
                str(error) if isinstance(error, SaslFailed) else "a challenge is not valid base64"
            )
            self.server_untrusted = True
            return [Message("AUTHENTICATE", ("*",))]
        starts = range(0, len(answer), CHUNK_SIZE)
        chunks = [answer[start : start + CHUNK_SIZE].decode() for start in starts]
        if len(answer) % CHUNK_SIZE == 0:
            chunks.append("+")
        return [Message("AUTHENTICATE", (chunk,)) for chunk in chunks]

    def _may_succeed(self) -> bool:
        """Return whether the server may report success now; if it may not, SASL has ended."""
        # An impostor cannot produce the server signature of SCRAM (RFC 5802), but it can send 900
        # and 903.
        if self._mechanism and not self._mechanism.complete:
            self._warn("the server calls it a success before it has proved who it is")
            self.server_untrusted = True
        if self.server_untrusted:
            self.account, self.succeeded, self._mechanism, self._left = None, False, None, []
        return not self.server_untrusted

    def _warn(self, why: str, **details: str) -> None:
        self.failure = why
        log.warning("irc.sasl_failed", network=self._network, why=why, **details)

"""SCRAM, where both sides prove that they know a password and neither says it.

RFC 5802 (the exchange), RFC 7677 (SHA-256), RFC 4013 (SASLprep). Nothing here does I/O.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import stringprep
import unicodedata

from harnesses.irc.protocol.errors import SaslFailed

ITERATIONS = range(4096, 1_000_001)
"""How often a server may ask for the hash: fewer is weak (RFC 7677), more would stop our clock."""

_HEADER = b"n,,"  # no channel binding, and nobody to act for but ourselves
_PROHIBITED = (
    stringprep.in_table_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3,
    stringprep.in_table_c4, stringprep.in_table_c5, stringprep.in_table_c6,
    stringprep.in_table_c7, stringprep.in_table_c8, stringprep.in_table_c9,
)  # fmt: skip


def saslprep(text: str) -> str:
    """`text` in the one form in which both sides hash it. Raises ValueError.

    Right-to-left text must be so at both ends; control characters and the like are not allowed.
    """
    mapped = "".join(
        " " if stringprep.in_table_c12(c) else c for c in text if not stringprep.in_table_b1(c)
    )
    prepared = unicodedata.normalize("NFKC", mapped)
    if any(prohibited(c) for c in prepared for prohibited in _PROHIBITED):
        raise ValueError("a name or password has characters that SASL does not allow")
    if any(map(stringprep.in_table_d1, prepared)) and not (
        stringprep.in_table_d1(prepared[0])
        and stringprep.in_table_d1(prepared[-1])
        and not any(map(stringprep.in_table_d2, prepared))
    ):
        raise ValueError("a name or password mixes directions of writing")
    return prepared


class Scram:
    """One exchange as the client; `digest` is sha256 or sha512, `nonce` is for tests of the RFC.

    Raises ValueError when SASLprep does not allow the name or the password.
    """

    def __init__(self, digest: str, username: str, password: str, nonce: str = "") -> None:
        self._digest = digest
        name = saslprep(username).replace("=", "=3D").replace(",", "=2C")
        self._password = saslprep(password).encode()
        self._nonce = nonce or secrets.token_urlsafe(24)
        self._first = f"n={name},r={self._nonce}".encode()
        self._server_signature: bytes | None = None
        self._begun = self._verified = False

    def answer(self, challenge: bytes) -> bytes:
        """The answer to what the server has said; its first word is nothing at all.

        Raises SaslFailed when the server breaks the protocol or does not know the password.
        """
        if not self._begun:
            self._begun = True
            return _HEADER + self._first
        if self._server_signature is None:
            return self._proof(challenge)
        self._verify(challenge)
        return b""

    @property
    def complete(self) -> bool:
        """Whether the server has proved that it knows us: no success counts before."""
        return self._verified

    def _proof(self, challenge: bytes) -> bytes:
        salt, iterations, nonce = self._server_first(challenge)
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, salt, iterations)
        bare = b"c=" + base64.b64encode(_HEADER) + b",r=" + nonce
        said = b",".join((self._first, challenge, bare))
        key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._digest, key).digest(), said)
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), said)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return bare + b",p=" + base64.b64encode(proof)

    def _server_first(self, challenge: bytes) -> tuple[bytes, int, bytes]:
        fields = _fields(challenge)
        try:
            salt = base64.b64decode(fields[b"s"], validate=True)
            iterations, nonce = int(fields[b"i"]), fields[b"r"]
        except (KeyError, ValueError):
            raise SaslFailed("the server's first message of SCRAM is no such message") from None
        if b"m" in fields or iterations not in ITERATIONS:
            raise SaslFailed(f"the server asks for {iterations} iterations or an unknown extension")
        if not nonce.startswith(self._nonce.encode()) or len(nonce) == len(self._nonce):
            raise SaslFailed("the server answers to another conversation")
        return salt, iterations, nonce

    def _verify(self, challenge: bytes) -> None:
        expected = b"v=" + base64.b64encode(self._server_signature or b"")
        if self._verified or not hmac.compare_digest(challenge.partition(b",")[0], expected):
            raise SaslFailed("the server does not know the password")
        self._verified = True

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._digest)


def _fields(message: bytes) -> dict[bytes, bytes]:
    pairs = (item.partition(b"=") for item in message.split(b","))
    return {name: value for name, _, value in pairs}

"""The ways to prove who we are to services: SASL mechanisms, and which of them we can use.

RFC 4616 (PLAIN), RFC 4422 appendix A (EXTERNAL), scram.py, and ECDSA-NIST256P-CHALLENGE as
Atheme defines it: the server's 32 bytes are signed as they are, for they count as a digest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from harnesses.irc.errors import SaslFailed
from harnesses.irc.scram import Scram
from harnesses.irc.settings import NetworkSettings


class Mechanism(Protocol):
    """One exchange of one mechanism."""

    @property
    def complete(self) -> bool:
        """Whether the server may call it a success now."""

    def answer(self, challenge: bytes) -> bytes:
        """The answer to a challenge; the first challenge is empty. Raises SaslFailed."""


Makers = Mapping[str, Callable[[], Mechanism]]
"""Mechanisms by name, in order of preference; a maker may raise OSError or ValueError."""


def mechanisms(settings: NetworkSettings, encrypted: bool) -> Makers:
    """What the settings have credentials for, in the order of `sasl` or from strong to weak.

    PLAIN, which says the password itself, goes over an unencrypted connection only when `sasl`
    names it.
    """
    user = settings.sasl_username or ""
    password = settings.sasl_password.get_secret_value() if settings.sasl_password else None
    makers: dict[str, Callable[[], Mechanism]] = {}
    if settings.tls_cert and encrypted:
        makers["EXTERNAL"] = lambda: _Words(user)
    if user and settings.sasl_key:
        key = settings.sasl_key.get_secret_value()
        makers["ECDSA-NIST256P-CHALLENGE"] = lambda: _Ecdsa(user, key)
    if user and password is not None:
        makers["SCRAM-SHA-512"] = lambda: Scram("sha512", user, password)
        makers["SCRAM-SHA-256"] = lambda: Scram("sha256", user, password)
        if encrypted or settings.sasl:
            makers["PLAIN"] = lambda: _Words(f"{user}\0{user}\0{password}")
    return {name: makers[name] for name in settings.sasl or makers if name in makers}


class _Words:
    """A mechanism of one message: EXTERNAL (whom to act for), PLAIN (that, name, password)."""

    complete = True

    def __init__(self, words: str) -> None:
        self._words = words

    def answer(self, challenge: bytes) -> bytes:
        if challenge:
            raise SaslFailed("the server asks for more than the mechanism has")
        return self._words.encode()


class _Ecdsa:
    """A signature by the key whose public half services know; `key` is PEM or the path of it."""

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
            raise SaslFailed(f"a challenge of {len(challenge)} bytes is none of this mechanism")
        return self._key.sign(challenge, ec.ECDSA(Prehashed(SHA256())))

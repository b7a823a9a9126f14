"""Server side of SCRAM, implemented from RFC 5802 independently of the client under test."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field


@dataclass
class ScramServer:
    """One authentication exchange for one password.

    If `lying`, the server's signature is computed from another password, like that of an impostor
    who does not know the right one.
    """

    password: str
    digest: str = "sha256"
    iterations: int = 4096
    salt: bytes = b"salt of a test"
    lying: bool = False
    said: list[bytes] = field(default_factory=list)

    def first(self, client_first: bytes) -> bytes:
        """Return the server-first-message, with nonce, salt and iteration count."""
        bare = client_first.removeprefix(b"n,,")
        assert bare != client_first, "no authorization identity, no channel binding"
        self.nonce = bare.partition(b",r=")[2] + b"-of-the-server"
        salt = base64.b64encode(self.salt)
        answer = b"r=%s,s=%s,i=%d" % (self.nonce, salt, self.iterations)
        self.said += [bare, answer]
        return answer

    def final(self, client_final: bytes) -> bytes | None:
        """Return the server-final-message with our signature; None if the client's proof is
        wrong."""
        bare, _, proof = client_final.rpartition(b",p=")
        assert bare == b"c=biws,r=" + self.nonce  # "biws" is base64 of the GS2 header "n,,"
        said = b",".join((*self.said, bare))
        salted = self._salted(self.password)
        stored = hashlib.new(self.digest, self._hmac(salted, b"Client Key")).digest()
        signature = self._hmac(stored, said)
        # ClientProof = ClientKey XOR ClientSignature, and StoredKey = H(ClientKey).
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(self.digest, key).digest() != stored:
            return None
        known = self._salted(self.password + "?" if self.lying else self.password)
        ours = self._hmac(self._hmac(known, b"Server Key"), said)
        return b"v=" + base64.b64encode(ours)

    def _salted(self, password: str) -> bytes:
        return hashlib.pbkdf2_hmac(self.digest, password.encode(), self.salt, self.iterations)

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self.digest)

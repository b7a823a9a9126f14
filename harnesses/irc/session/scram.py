"""SCRAM (RFC 5802, RFC 7677): mutual proof of knowing a password, which is never transmitted.

Implemented by scramp; without channel binding, which no IRC services offer. No I/O.
"""

from __future__ import annotations

import scramp

from harnesses.irc.protocol.errors import SaslFailed

MAX_ITERATIONS = 1_000_000
"""The maximum iteration count that a server may demand; more would block our event loop for
seconds. scramp itself refuses less than 4096 (RFC 7677), and salts of less than 12 bytes."""


class Scram:
    """The client side of one SCRAM exchange; `mechanism` is SCRAM-SHA-256 or SCRAM-SHA-512.

    `nonce` replaces the random client nonce, for the RFC's test vectors. Raises ValueError if
    SASLprep (RFC 4013) does not allow the name or the password.
    """

    def __init__(self, mechanism: str, username: str, password: str, nonce: str = "") -> None:
        try:
            self._client = scramp.ScramClient(
                [mechanism], username, password, c_nonce=nonce or None
            )
        except scramp.ScramException as error:
            raise ValueError(f"SASL does not allow the name or password: {error}") from error
        self._begun = self._proved = False
        self.complete = False  # set once the server's signature has been verified

    def answer(self, challenge: bytes) -> bytes:
        """Return the response to a message of the server; its first message is empty.

        Raises SaslFailed if the server violates the protocol or does not know the password.
        """
        if not self._begun:
            self._begun = True
            first: str = self._client.get_client_first()
            return first.encode()
        try:
            message = challenge.decode()
            if not self._proved:
                return self._proof(message)
            self._client.set_server_final(message)  # raises if the server's signature is wrong
        except (scramp.ScramException, UnicodeDecodeError) as error:
            raise SaslFailed(f"the server's part of SCRAM is wrong: {error}") from error
        self.complete = True
        return b""

    def _proof(self, server_first: str) -> bytes:
        self._client.set_server_first(server_first)
        if int(self._client.iterations) > MAX_ITERATIONS:
            raise SaslFailed(f"the server asks for {self._client.iterations} iterations")
        self._proved = True
        final: str = self._client.get_client_final()
        return final.encode()

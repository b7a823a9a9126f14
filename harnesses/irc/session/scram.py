"""SCRAM, where both sides prove that they know a password and neither says it.

RFC 5802 and RFC 7677 as scramp has them; without channel binding, which no IRC services offer.
Nothing here does I/O.
"""

from __future__ import annotations

import scramp

from harnesses.irc.protocol.errors import SaslFailed

MOST_ITERATIONS = 1_000_000
"""The most iterations that a server may ask for; more would stop our event loop for seconds.
scramp itself refuses less than 4096 (RFC 7677), and salts of less than 12 bytes."""


class Scram:
    """One exchange as the client; `mechanism` is SCRAM-SHA-256 or SCRAM-SHA-512, `nonce` is for
    tests of the RFC.

    Raises ValueError when SASLprep (RFC 4013) does not allow the name or the password.
    """

    def __init__(self, mechanism: str, username: str, password: str, nonce: str = "") -> None:
        try:
            self._client = scramp.ScramClient(
                [mechanism], username, password, c_nonce=nonce or None
            )
        except scramp.ScramException as error:
            raise ValueError(f"SASL does not allow the name or password: {error}") from error
        self._begun = self._proved = False
        self.complete = False  # true when the server has proved that it knows us: not before

    def answer(self, challenge: bytes) -> bytes:
        """Return the answer to what the server has said; its first message is empty.

        Raises SaslFailed when the server breaks the protocol or does not know the password.
        """
        if not self._begun:
            self._begun = True
            first: str = self._client.get_client_first()
            return first.encode()
        try:
            message = challenge.decode()
            if not self._proved:
                return self._proof(message)
            self._client.set_server_final(message)
        except (scramp.ScramException, UnicodeDecodeError) as error:
            raise SaslFailed(f"the server's part of SCRAM is wrong: {error}") from error
        self.complete = True
        return b""

    def _proof(self, server_first: str) -> bytes:
        self._client.set_server_first(server_first)
        if int(self._client.iterations) > MOST_ITERATIONS:
            raise SaslFailed(f"the server asks for {self._client.iterations} iterations")
        self._proved = True
        final: str = self._client.get_client_final()
        return final.encode()

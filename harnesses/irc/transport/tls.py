"""TLS contexts and certificate fingerprints."""

from __future__ import annotations

import asyncio
import hashlib
import ssl

from harnesses.irc.settings import NetworkSettings


def tls_context(settings: NetworkSettings) -> ssl.SSLContext:
    """Return the TLS context for connections to a network.

    With `tls_fingerprints` the certificate is pinned and its chain and name are not verified;
    without `tls_verify` any certificate is accepted. Raises OSError if `tls_cert` cannot be used.
    """
    context = ssl.create_default_context()
    if settings.tls_fingerprints or not settings.tls_verify:
        # `IrcConnection.connection_made` compares the fingerprint after the handshake.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.tls_cert:
        context.load_cert_chain(settings.tls_cert)
    return context


def explain(error: OSError | UnicodeError, port: int, encrypted: bool) -> str:
    """Return for people why connecting to `port` failed, with advice for TLS; never empty."""
    text = str(error) or "no connection stood in good time"
    if isinstance(error, ssl.SSLCertVerificationError) or not encrypted:
        return text
    if isinstance(error, ssl.SSLError | ConnectionAbortedError | ConnectionResetError):
        # A server without TLS answers in clear text, which OpenSSL reports as a wrong version, or
        # stays silent, or closes the connection.
        return (
            f"{text}; the server does not speak TLS on port {port}: set `port` to the one for TLS "
            "(often 6697), or tls = false"
        )
    return text


def fingerprint(transport: asyncio.BaseTransport) -> str | None:
    """Return the SHA-256 of the peer's certificate in lower-case hexadecimal; None without TLS."""
    connection = transport.get_extra_info("ssl_object")
    certificate = connection.getpeercert(binary_form=True) if connection else None
    return hashlib.sha256(certificate).hexdigest() if certificate else None

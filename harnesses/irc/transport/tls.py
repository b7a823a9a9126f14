"""TLS contexts, and certificates that are trusted by fingerprint."""

from __future__ import annotations

import asyncio
import hashlib
import ssl

from harnesses.irc.settings import NetworkSettings


def tls_context(settings: NetworkSettings) -> ssl.SSLContext:
    """Return the TLS context for the connections of a network.

    With `tls_fingerprints` the certificate itself is known and no authority is asked; without
    `tls_verify` any certificate is taken. Raises OSError when `tls_cert` cannot be used.
    """
    context = ssl.create_default_context()
    if settings.tls_fingerprints or not settings.tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.tls_cert:
        context.load_cert_chain(settings.tls_cert)
    return context


def fingerprint(transport: asyncio.BaseTransport) -> str | None:
    """Return the SHA-256 of the other side's certificate, in hexadecimal; None without TLS."""
    connection = transport.get_extra_info("ssl_object")
    certificate = connection.getpeercert(binary_form=True) if connection else None
    return hashlib.sha256(certificate).hexdigest() if certificate else None

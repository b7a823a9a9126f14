"""Errors of the IRC package.

IrcError
├── InvalidMessage
├── SaslFailed
└── UntrustedCertificate
"""

from __future__ import annotations


class IrcError(Exception):
    """Base class of the IRC errors; the message is written for people."""


class InvalidMessage(IrcError, ValueError):
    """A message that cannot be serialised as one IRC line."""


class SaslFailed(IrcError):
    """A SASL exchange in which the server's part is invalid: it may be an impostor."""


class UntrustedCertificate(IrcError, OSError):
    """A server certificate whose fingerprint is not in `tls_fingerprints`."""

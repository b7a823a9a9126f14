"""Errors of the IRC package.

IrcError
├── InvalidMessage
├── SaslFailed
└── UntrustedCertificate
"""

from __future__ import annotations


class IrcError(Exception):
    """Something about IRC cannot be done; the message says what."""


class InvalidMessage(IrcError, ValueError):
    """A message cannot be put on one IRC line."""


class SaslFailed(IrcError):
    """The server's part of an authentication is wrong, so it is not who it should be."""


class UntrustedCertificate(IrcError, OSError):
    """The server's certificate has none of the fingerprints in `tls_fingerprints`."""

"""Errors of the IRC package.

IrcError
└── InvalidMessage
"""

from __future__ import annotations


class IrcError(Exception):
    """Something about IRC cannot be done; the message says what."""


class InvalidMessage(IrcError, ValueError):
    """A message cannot be put on one IRC line."""

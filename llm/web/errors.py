"""Errors of reading a page. Their messages are for people and for the model."""

from __future__ import annotations


class PageError(Exception):
    """A page could not be read. The message says why, without the IP addresses of a host."""


class PageRefused(PageError):
    """The page may not be read because of its address, robots.txt, type or size."""


class PageUnreadable(PageError):
    """The page could not be fetched or parsed, or has no text."""


class ExtraMissing(PageError):
    """The libraries that read pages are not installed."""

    def __init__(self) -> None:
        super().__init__(
            "pages cannot be read here: install the extra, pip install 'terrarium-irc[pages]'"
        )

"""The errors of fetching a page. Their messages are for people and for the model.

PageError
├── PageRefused     it may not be fetched: its address, its rules, its type or its size
├── PageUnreadable  it was not fetched, or there is nothing to read in it
└── ExtraMissing    the libraries that read pages are not installed
"""

from __future__ import annotations


class PageError(Exception):
    """A page could not be read; the message says why, and names no address behind a host."""


class PageRefused(PageError):
    """The page may not be fetched: its address, its rules, its type or its size."""


class PageUnreadable(PageError):
    """The page was not fetched, or there is nothing to read in it."""


class ExtraMissing(PageError):
    """The libraries that read pages are not installed."""

    def __init__(self) -> None:
        super().__init__(
            'pages cannot be read here: install the extra, pip install "terrarium[pages]"'
        )

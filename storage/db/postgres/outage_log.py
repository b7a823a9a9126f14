"""Outages of PostgreSQL in our log, each once, whatever psycopg and its pools say of them."""

from __future__ import annotations

import logging
from threading import Lock

import structlog

_DRIVER = "psycopg"  # and its pools
# How a warning begins that no connection can be made, or that one is gone: that is found when it is
# needed again, which may be long after the outage.
_AWAY = ("error connecting", "reconnection attempt")
_GONE = ("discarding", "closing returned", "error ignored terminating")

_log = structlog.get_logger()


class OutageLog(logging.Handler):
    """Takes the warnings of psycopg in this process. Of an outage only the first is logged: each
    pool warns at each attempt, and whoever reads or writes is told why by an error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._is_away = False
        self._changing = Lock()  # pools have threads of their own

    def install(self) -> None:
        """Take the warnings from now on; nobody else is shown them."""
        logger = logging.getLogger(_DRIVER)
        logger.addHandler(self)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Log a warning that begins an outage, or has to do with none."""
        warning = next(iter(record.getMessage().splitlines()), "")
        if warning.startswith(_AWAY):
            if self._change(is_away=True):
                _log.warning("postgres.away", warning=warning)
        elif not warning.startswith(_GONE):
            _log.warning("postgres.warning", warning=warning)

    def end(self) -> None:
        """Note that a connection was made."""
        if self._change(is_away=False):
            _log.info("postgres.back")

    def _change(self, *, is_away: bool) -> bool:
        """Return True if it was the other way round before."""
        with self._changing:
            changed, self._is_away = self._is_away != is_away, is_away
        return changed


outages = OutageLog()
"""The one of this process, as psycopg has one logger."""

"""Logging of PostgreSQL outages: each once, however often psycopg and its pools warn."""

from __future__ import annotations

import logging
from threading import Lock

import structlog

_DRIVER = "psycopg"  # the logger of the driver, and the parent of that of its pools
# How warnings begin that a connection cannot be made (`_AWAY`) or was lost (`_GONE`). A lost one is
# noticed when it is next needed, maybe long after the outage, so it does not begin one.
_AWAY = ("error connecting", "reconnection attempt")
_GONE = ("discarding", "closing returned", "error ignored terminating")

_log = structlog.get_logger()


class OutageLog(logging.Handler):
    """Log handler for the warnings of psycopg in this process.

    Only the first warning of an outage is logged: each pool warns at each attempt, and every failed
    read or write raises an error with the reason anyway.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._is_away = False
        self._changing = Lock()  # pools have threads of their own

    def install(self) -> None:
        """Handle psycopg's warnings from now on, and no longer pass them to the root logger."""
        logger = logging.getLogger(_DRIVER)
        logger.addHandler(self)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Log a warning that begins an outage, or one that is not about connections."""
        warning = next(iter(record.getMessage().splitlines()), "")
        if warning.startswith(_AWAY):
            if self._change(is_away=True):
                _log.warning("postgres.away", warning=warning)
        elif not warning.startswith(_GONE):
            _log.warning("postgres.warning", warning=warning)

    def end(self) -> None:
        """Record that a connection was made, which ends an outage."""
        if self._change(is_away=False):
            _log.info("postgres.back")

    def _change(self, *, is_away: bool) -> bool:
        """Set the state, and return True if it has changed."""
        with self._changing:
            changed, self._is_away = self._is_away != is_away, is_away
        return changed


outages = OutageLog()
"""The handler of this process; there is one because psycopg has one logger."""

"""Structured logs: dotted event names, key=value on a terminal, JSON lines when asked."""

from __future__ import annotations

import logging
import os
import sys
from typing import Literal

import stamina.instrumentation
import structlog

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["console", "json"]


def configure(process: str, level: Level = "info", style: Format = "console") -> None:
    """Send this process's log lines to standard error, each marked with `process`.

    Libraries that use the standard `logging` module are shown from warnings upwards.
    """
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s"
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _renderer(style),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        # One write for each line: several processes share the terminal or the pipe.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)
    # What gave up in the end is logged where it matters; each attempt need not be.
    stamina.instrumentation.set_on_retry_hooks([])


def configure_child(process: str) -> None:
    """Configure a process as the command line that started it, or its environment, says."""
    level: Level = os.environ.get("TERRARIUM_LOG_LEVEL", "info")  # type: ignore[assignment]
    style: Format = os.environ.get("TERRARIUM_LOG_FORMAT", "console")  # type: ignore[assignment]
    configure(process, level, style)


def _renderer(style: Format) -> structlog.typing.Processor:
    """Columns and colours are for people only: a terminal's reader has the time for them."""
    if style == "json":
        return structlog.processors.JSONRenderer()
    if sys.stderr.isatty():
        return structlog.dev.ConsoleRenderer()
    return _plain


def _plain(_logger: object, _method: str, event: structlog.typing.EventDict) -> str:
    """One line of `key=value`, whatever the values hold; a traceback follows on its own."""
    when, level, name = (event.pop(key, "") for key in ("timestamp", "level", "event"))
    trace = event.pop("exception", None)
    words = [f"{key}={_word(value)}" for key, value in event.items()]
    line = " ".join([f"{when} [{level}] {_word(name)}", *words])
    return f"{line}\n{trace}" if trace else line


def _word(value: object) -> str:
    is_word = isinstance(value, str) and value.isprintable() and " " not in value
    return str(value) if is_word else repr(value)

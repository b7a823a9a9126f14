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

_ROUTINE = (
    *("server.listening", "web.serving", "engine.started", "embeddings.started", "model.learned"),
    *("irc.expired", "irc.connected", "worker.done", "mcp.connected"),
)
"""Events of level info that a terminal does not show: a start that goes well, and housekeeping."""


def configure(process: str, level: Level = "info", style: Format = "console") -> None:
    """Send this process's log lines to standard error, each marked with `process`, with the
    warnings and errors of libraries that use the standard `logging` module."""
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s"
    )
    # JSON, or columns and colours on a terminal, else plain lines.
    times = structlog.processors.TimeStamper(fmt="iso", utc=True)
    rendering: list[structlog.typing.Processor] = [times, _plain]
    if style == "json":
        rendering = [times, structlog.processors.JSONRenderer()]
    elif sys.stderr.isatty():
        clock = structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)
        rendering = [_for_people, clock, structlog.dev.ConsoleRenderer(pad_event_to=20)]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            *rendering,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        # One write for each line, as several processes share the terminal or the pipe.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)
    # stamina would log every retry; callers log what has finally failed.
    stamina.instrumentation.set_on_retry_hooks([])


def configure_child(process: str) -> None:
    """Configure a child process from the environment, where the command line puts its options."""
    level: Level = os.environ.get("TERRARIUM_LOG_LEVEL", "info")  # type: ignore[assignment]
    style: Format = os.environ.get("TERRARIUM_LOG_FORMAT", "console")  # type: ignore[assignment]
    configure(process, level, style)


def _for_people(
    _logger: object, method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Leave out what people need not see: a good start, requests without a model, request ids."""
    is_small = event["event"] == "request.done" and event.get("completion", 0) < 2
    if method == "info" and (is_small or event["event"] in _ROUTINE):
        raise structlog.DropEvent
    for key in ("request_id", "priority"):
        event.pop(key, None)
    return event


def _plain(_logger: object, _method: str, event: structlog.typing.EventDict) -> str:
    """Render an event as one line of `key=value` pairs; a traceback follows on lines of its own."""
    when, level, name = (event.pop(key, "") for key in ("timestamp", "level", "event"))
    trace = event.pop("exception", None)
    words = [f"{key}={_word(value)}" for key, value in event.items()]
    line = " ".join([f"{when} [{level}] {_word(name)}", *words])
    return f"{line}\n{trace}" if trace else line


def _word(value: object) -> str:
    # Escaped by `repr` otherwise: a line break in a value must not forge another log line.
    is_word = isinstance(value, str) and value.isprintable() and " " not in value
    return str(value) if is_word else repr(value)

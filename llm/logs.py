"""Structured logs: dotted event names, key=value on a terminal, JSON lines when asked."""

from __future__ import annotations

import logging
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
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    structlog.contextvars.bind_contextvars(process=process)
    # What gave up in the end is logged where it matters; each attempt need not be.
    stamina.instrumentation.set_on_retry_hooks([])

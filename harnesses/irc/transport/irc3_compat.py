"""Import of irc3 and irc3d without their process-wide side effects.

Importing irc3 sets the class of all later loggers and replaces `asyncio.sleep` and `asyncio.wait`;
creating a bot or a server reconfigures all logging, which `LOGGING` prevents.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

_logger_class = logging.getLoggerClass()

import irc3  # noqa: E402
import irc3d  # noqa: E402
from irc3d.plugins.command import ServerCommands  # noqa: E402

logging.setLoggerClass(_logger_class)
asyncio.sleep = asyncio.tasks.sleep
asyncio.wait = asyncio.tasks.wait

LOGGING: dict[str, Any] = {"version": 1, "incremental": True}
"""A `logging_config` for a bot or a server that leaves the logging configuration unchanged."""

__all__ = ["LOGGING", "ServerCommands", "irc3", "irc3d"]

"""The command `terrarium chat`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from harnesses.chat.tendril import TerminalTendril
from harnesses.core.addresses import with_agent_address
from storage.db.private_files import tighten_data
from storage.db.process_lock import hold_lock
from terrarium.command_line import ConfigFile, DataFolder
from terrarium.config import load
from terrarium.logging import Format, configure


def chat(config: ConfigFile = None, data: DataFolder = Path("data")) -> None:
    """Talk with the model in this terminal; the conversation is remembered."""
    if sys.stderr.isatty() and "--log-level" not in sys.argv:
        style: Format = os.environ["TERRARIUM_LOG_FORMAT"]  # type: ignore[assignment]
        configure("chat", "error", style)  # log lines would disturb the conversation
    loaded = with_agent_address(load(config, data))
    # Shared, as several terminals may chat: it only keeps off commands that need all to be stopped.
    with hold_lock(data, "chat", "terrarium chat", shared=True):
        tighten_data(data)
        asyncio.run(TerminalTendril(loaded).run())

"""Entry point of `python -m tests.kit.small_tendril DATA AGENT_URL`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from terrarium.config import Config
from tests.kit.small_tendril import SmallTendril

_data, _url = sys.argv[1:]
asyncio.run(SmallTendril(Config({"agent": {"api_url": _url}}, None, Path(_data))).run())

"""The rules of a robots.txt (RFC 9309)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llm.web.errors import ExtraMissing

MOST = 500_000
"""Bytes of a robots.txt that are read; what stands behind them does not count."""


@dataclass(frozen=True, slots=True)
class RobotsRules:
    """The rules of a host for a program by the name of `agent`; without a parser it allows all."""

    agent: str
    parser: Any = None

    @classmethod
    def parse(cls, text: str, agent: str) -> RobotsRules:
        """Read a robots.txt. Raises ExtraMissing."""
        try:
            from protego import Protego
        except ImportError as error:
            raise ExtraMissing from error
        return cls(agent, Protego.parse(text))

    def allow(self, url: str) -> bool:
        """Return if a URL of the host may be fetched."""
        return self.parser is None or bool(self.parser.can_fetch(url, self.agent))

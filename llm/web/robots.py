"""Rules of a robots.txt (RFC 9309)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llm.web.errors import ExtraMissing

MAX_ROBOTS_SIZE = 500 * 1024
"""Maximum bytes of a robots.txt that are read; the rest is ignored. RFC 9309, section 2.5, demands
at least 500 KiB."""


@dataclass(frozen=True, slots=True)
class RobotsRules:
    """Rules of a host for the product token `agent`; without a `parser` everything is allowed."""

    agent: str
    parser: Any = None

    @classmethod
    def parse(cls, text: str, agent: str) -> RobotsRules:
        """Parse a robots.txt. Raises ExtraMissing."""
        try:
            from protego import Protego
        except ImportError as error:
            raise ExtraMissing from error
        return cls(agent, Protego.parse(text))

    def allow(self, url: str) -> bool:
        """Return whether a URL of the host may be fetched."""
        return self.parser is None or bool(self.parser.can_fetch(url, self.agent))

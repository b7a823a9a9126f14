"""Strict transport security: a server that says so is never again spoken to in the clear.

https://ircv3.net/specs/extensions/sts. The policies outlive the process in a small JSON file.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from harnesses.irc.protocol.errors import IrcError


@dataclass(frozen=True, slots=True)
class Sts:
    """The announcement of a server: its TLS port, and for how many seconds to insist on it."""

    port: int | None
    duration: int | None

    @classmethod
    def parse(cls, value: str) -> Sts:
        """Read the value of the capability `sts`; a part that is no number counts as missing."""
        parts = {k: _number(v) for k, _, v in (part.partition("=") for part in value.split(","))}
        port = parts.get("port")
        usable = port is not None and 0 < port < 65536
        return cls(port if usable else None, parts.get("duration"))


@dataclass(frozen=True, slots=True)
class Policy:
    """Speak TLS on `port` until `expires` (Unix time); each goodbye gives `duration` more."""

    port: int
    duration: int
    expires: float


class StsPolicies:
    """The policies by host name, kept in `path` (None: for the life of the process).

    `clock` returns Unix time. Raises IrcError when the file cannot be read: what it forbids is
    not known then.
    """

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._upgrades: dict[str, int] = {}
        self._policies = _read(path) if path and path.exists() else {}

    def port(self, host: str) -> int | None:
        """Return the port on which `host` demands TLS; None when nothing is known."""
        policy = self._policies.get(host.lower())
        if policy and policy.expires > self._clock():
            return policy.port
        return self._upgrades.get(host.lower())

    def upgrade(self, host: str, port: int) -> None:
        """`host` has asked for TLS in the clear, where anybody may have written it: it binds
        this process, and is not kept."""
        self._upgrades[host.lower()] = port

    def store(self, host: str, port: int, duration: int) -> None:
        """Store what `host` has announced over TLS; a duration of 0 takes it back."""
        if duration:
            expires = self._clock() + duration
            self._policies[host.lower()] = Policy(port, duration, expires)
        else:
            self._upgrades.pop(host.lower(), None)
            self._policies.pop(host.lower(), None)
        self._write()

    def renew(self, host: str) -> None:
        """Restart the time of a policy when a connection to `host` over TLS has ended."""
        if policy := self._policies.get(host.lower()):
            expires = self._clock() + policy.duration
            self._policies[host.lower()] = replace(policy, expires=expires)
            self._write()

    def _write(self) -> None:
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._path.with_name(f".{self._path.name}.new")
            policies = {host: asdict(policy) for host, policy in self._policies.items()}
            fresh.write_text(json.dumps(policies, indent=1) + "\n", encoding="utf-8")
            os.replace(fresh, self._path)


def _read(path: Path) -> dict[str, Policy]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return {host: Policy(**fields) for host, fields in kept.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise IrcError(
            f"{path} cannot be read ({error}); remove it to forget which servers insist on TLS"
        ) from error


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None

"""Strict transport security (STS): servers to which we connect with TLS only.

https://ircv3.net/specs/extensions/sts. The policies are stored in a JSON file.
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
    """The value of a server's `sts` capability: its TLS port, and the policy's duration in seconds.

    The port counts on an unencrypted connection only, the duration on an encrypted one only.
    """

    port: int | None
    duration: int | None

    @classmethod
    def parse(cls, value: str) -> Sts:
        """Parse the value of the `sts` capability; an invalid number counts as missing."""
        texts = dict(part.partition("=")[::2] for part in value.split(","))
        numbers = {
            key: int(text)
            for key, text in texts.items()
            if text.isascii() and text.isdigit() and len(text) < 18
        }
        port = numbers.get("port", 0)
        return cls(port if 0 < port < 65536 else None, numbers.get("duration"))


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy: connect with TLS to `port` until `expires` (Unix time).

    Every disconnect restarts `duration` (seconds).
    """

    port: int
    duration: int
    expires: float


class StsPolicies:
    """STS policies by host name, stored in `path`; with None, in memory only.

    `clock` returns Unix time. Raises IrcError if the file cannot be read: without it we might
    connect in clear text to a server that forbids that.
    """

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._upgrades: dict[str, int] = {}
        self._policies = _read(path) if path and path.exists() else {}

    def port(self, host: str) -> int | None:
        """Return the port on which `host` demands TLS, or None if it has no policy."""
        policy = self._policies.get(host.lower())
        if policy and policy.expires > self._clock():
            return policy.port
        return self._upgrades.get(host.lower())

    def upgrade(self, host: str, port: int) -> None:
        """Record that `host` demanded TLS on `port` over an unencrypted connection.

        It counts until the process ends. Anybody on the path may have forged it, so it is not
        stored: it must not lock us out of the server for longer.
        """
        self._upgrades[host.lower()] = port

    def store(self, host: str, port: int, duration: int) -> None:
        """Store the policy that `host` announced over TLS; a duration of 0 removes it."""
        if duration:
            expires = self._clock() + duration
            self._policies[host.lower()] = Policy(port, duration, expires)
        else:
            self._upgrades.pop(host.lower(), None)
            self._policies.pop(host.lower(), None)
        self._write()

    def renew(self, host: str) -> None:
        """Extend the policy of `host` by its duration from now, as the specification demands at the
        end of each TLS connection: one may last longer than the policy."""
        if policy := self._policies.get(host.lower()):
            expires = self._clock() + policy.duration
            self._policies[host.lower()] = replace(policy, expires=expires)
            self._write()

    def _write(self) -> None:
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Write and rename, so that a crash leaves the old file or the new one.
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

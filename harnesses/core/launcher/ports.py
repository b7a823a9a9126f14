"""Checks that ports are free, made before any process is started."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass

from harnesses.core.errors import PortTaken, TendrilError
from terrarium.sockets import listen


@dataclass(frozen=True, slots=True)
class PortRequirement:
    """A port that `who` will listen on, and the environment variable and setting that change it."""

    who: str
    host: str
    port: int
    variable: str
    key: str


def require_free(needs: Iterable[PortRequirement]) -> None:
    """Check each port by listening on it for a moment.

    Raises PortTaken, and TendrilError for an unusable address.
    """
    for need in needs:
        try:
            listen(need.host, need.port).close()
        except OSError as error:
            raise _explain(need, error) from error


def free_port(host: str) -> int:
    """Return a port of `host` that is free at the moment. Raises TendrilError."""
    try:
        with listen(host, 0) as probe:
            return int(probe.getsockname()[1])
    except OSError as error:
        raise TendrilError(f"cannot listen on {host}: {error.strerror or error}") from error


def _explain(need: PortRequirement, error: OSError) -> TendrilError:
    if error.errno == errno.EADDRINUSE:
        taken = PortTaken(need.host, need.port, need.variable, need.key)
        taken.add_note(f"{need.who} needs it")
        return taken
    return TendrilError(
        f"{need.who} cannot listen on {need.host} port {need.port}: {error.strerror or error}; "
        f"choose another port with {need.variable}=PORT or `{need.key}` in terrarium.toml"
    )

"""Free loopback ports for servers whose port is configured before they listen."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import suppress

_FIRST, _LAST, _EACH = 20_000, 32_000, 1_000
"""Below the ephemeral range, which Linux uses for outgoing connections and port 0: nothing else
takes a port between its choice and its use, or while a test restarts its server."""


def free_port() -> int:
    """Return a port on which nothing listens, and that no other test of this run gets."""
    for port in _PORTS:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("the ports have no end")


def _ports() -> Iterator[int]:
    """Yield ports of this process's range in a cycle.

    Each process of a test run has its own range, and a random offset makes it unlikely that two
    runs on one machine choose the same ports.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    begin = _FIRST + worker * _EACH % (_LAST - _FIRST)
    offset = random.randrange(_EACH)
    while True:
        yield begin + offset % _EACH
        offset += 1


_PORTS = _ports()

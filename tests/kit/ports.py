"""Loopback ports for servers that must be told theirs before they listen."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator

_FIRST, _LAST, _EACH = 20_000, 32_000, 1_000
"""Below what a system gives to outgoing connections and port 0: a server that was ended finds
its port free when it begins anew, and nothing else takes one between the asking and the use."""


def free_port() -> int:
    """A port that nobody listens on now, and that no other test of this run is given."""
    return next(port for port in _PORTS if _is_free(port))


def _ports() -> Iterator[int]:
    """Those of this process, each once in a thousand: processes of a test run have ranges of
    their own, and two runs on one machine begin somewhere else."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    begin = _FIRST + worker * _EACH % (_LAST - _FIRST)
    offset = random.randrange(_EACH)
    while True:
        yield begin + offset % _EACH
        offset += 1


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


_PORTS = _ports()

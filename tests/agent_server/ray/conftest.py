"""One Ray at a time, whatever runs in parallel."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def only_ray() -> Iterator[None]:
    """Wait until no other module of tests runs a Ray on this machine.

    Each has dozens of processes that give up when they are kept from starting for long.
    """
    with (Path(tempfile.gettempdir()) / "terrarium-tests-ray.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

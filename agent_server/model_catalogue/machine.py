"""The machine's means for a model: memory, cores, and graphics processors an engine can use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A graphics processor as the engine sees it; `memory` is in bytes."""

    name: str
    memory: int


@dataclass(frozen=True, slots=True)
class Machine:
    """Memory in bytes, what a container may use if that is less; cores this process may use."""

    memory: int
    cores: int
    gpus: tuple[Gpu, ...] = ()

    @classmethod
    def here(cls, gpus: Sequence[Gpu] = ()) -> Machine:
        """Look at the machine that this runs on."""
        return cls(_memory(), cores(), tuple(gpus))

    @property
    def gpu_memory(self) -> int:
        """The memory of the largest graphics processor, 0 without one."""
        return max((gpu.memory for gpu in self.gpus), default=0)


def cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def engine_gpus() -> tuple[Gpu, ...]:
    """Return what the installed build of the engine can use beside the processor.

    It has to load the engine's libraries, which takes a moment. Without the engine: nothing.
    """
    try:
        from xllamacpp import get_device_info, ggml_backend_dev_type
    except ImportError:
        return ()
    kinds = ggml_backend_dev_type
    own, shared = kinds.GGML_BACKEND_DEVICE_TYPE_GPU, kinds.GGML_BACKEND_DEVICE_TYPE_IGPU
    return tuple(
        # The memory of an integrated one is the machine's, which is counted already.
        Gpu(
            f"{device['name']} ({device['description']})",
            int(device["memory_total"]) if device["type"] == own else 0,
        )
        for device in get_device_info()
        if device["type"] in (own, shared)
    )


def _memory() -> int:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # "max" is no number: there is no limit
        memory = min(memory, int(_CGROUP.read_text(encoding="ascii")))
    return memory

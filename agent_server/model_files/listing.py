"""Listing of the local models and of the catalogue, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from agent_server.model_catalogue import catalogue
from agent_server.model_catalogue.catalogue import CatalogueEntry
from agent_server.model_catalogue.machine import Machine
from agent_server.model_files import store as model_store
from agent_server.settings.models import DEFAULT_NAME, ModelSettings

_HEADS = ("name", "size", "memory", "licence", "what it can do")


def listing(settings: ModelSettings, machine: Machine) -> Iterator[str]:
    """Yield the lines of `terrarium model list`, which mark the model in use and the best one for
    `machine`."""
    here = {path.name: path for path in model_store.pulled_files(settings)}
    yield f"here, in {settings.folder}:"
    for path in here.values():
        yield f"  {path.stem}  {_size(path.stat().st_size)}{_note(path, settings.file)}"
    if not here:
        yield "  none yet: the built-in model is fetched on the first start"
    yield f"to pull, for {_describe_machine(machine)}:"
    best = catalogue.best_for(machine)
    rows = [_row(entry, entry.file in here) for entry in catalogue.entries()]
    widths = [max(map(len, column)) for column in zip(_HEADS, *rows, strict=True)]
    yield _line("  ", _HEADS, widths)
    for entry, row in zip(catalogue.entries(), rows, strict=True):
        yield _line("* " if entry == best else "  ", row, widths)
    if best:
        yield f"* the best that runs well here: terrarium model pull {best.tier or best.name}"


def _row(entry: CatalogueEntry, here: bool) -> tuple[str, ...]:
    name = f"{entry.name} ({entry.tier})" if entry.tier else entry.name
    licence = entry.licence if entry.open_source else f"{entry.licence} (not open source)"
    can = f"{entry.can}; is here" if here else entry.can
    return name, _size(entry.size), _size(entry.memory), licence, can


def _line(mark: str, cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"{mark}{'  '.join(padded)}".rstrip()


def _note(path: Path, used: Path | None) -> str:
    built_in = ", built in" if path.name == DEFAULT_NAME else ""
    return built_in + (", in use" if path == used else "")


def _describe_machine(machine: Machine) -> str:
    gpus = [f"{gpu.name}, {_size(gpu.memory)}" if gpu.memory else gpu.name for gpu in machine.gpus]
    return "; ".join([f"{machine.cores} cores and {_size(machine.memory)}", *gpus])


def _size(size: int) -> str:
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"

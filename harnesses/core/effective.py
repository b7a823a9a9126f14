"""The effective configuration: every key with its value, secrets masked, and its origin."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from storage.chat_log.event import is_private
from terrarium.config import Config, names_of, variable_of

HIDDEN = "***"

_SECRET_NAME = re.compile(r"key|password|secret|token|sasl|socks|perform", re.IGNORECASE)
_URL = re.compile(r"^(\w+://)(?:[^/@]*@)?([^/?#]*)([^?#]*)(.*)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key of a table: `text` is its value as TOML, "" if it is not set; `origin` the
    environment variable or file that sets it, or "default"."""

    table: str
    key: str
    text: str
    origin: str


def config_entries(config: Config) -> Iterator[ConfigEntry]:
    """Yield every key of every table, with secrets masked. Raises ConfigError."""
    folder = Path(os.environ.get("TERRARIUM_SECRETS", "/run/secrets"))
    secrets = sorted(folder.iterdir()) if folder.is_dir() else []
    for table, section in config.check().items():
        for key in type(section).model_fields:
            value = getattr(section, key)
            names = names_of(type(section), key, f"{table}_")
            # The order of precedence in `Settings.settings_customise_sources`.
            origin = (
                variable_of(type(section), key, f"{table}_")
                or next((str(file) for file in secrets if file.name.lower() in names), "")
                or (config.name if key in config.tables.get(table, {}) else "default")
            )
            for name, text in _leaves(key, value):
                yield ConfigEntry(table, name, text, origin)


def _leaves(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield a key and its text; of tables in a table, such as jobs, each key that is set there."""
    tables = dict(value) if isinstance(value, Mapping) else {}
    if not any(isinstance(each, BaseModel | Mapping) for each in tables.values()):
        yield key, "" if value is None else _toml(value)
        return
    for name, each in tables.items():
        given = each.model_dump(exclude_unset=True) if isinstance(each, BaseModel) else each
        for inner, set_to in given.items():
            text = f'"{HIDDEN}"' if _is_secret(inner, set_to) else _toml(set_to)
            yield f"{key}.{name}.{inner}", text


def _toml(value: Any) -> str:
    match value:
        case SecretStr():
            return f'"{HIDDEN}"'
        case bool() | int() | float():
            return json.dumps(value)
        case BaseModel():
            return _toml(value.model_dump())
        case Mapping():
            # A free-form table has no `SecretStr` fields, so the key's name tells a secret.
            parts = (
                f'{key} = "{HIDDEN}"' if _is_secret(str(key), each) else f"{key} = {_toml(each)}"
                for key, each in value.items()
                if each is not None
            )
            return "{" + ", ".join(parts) + "}"
        case tuple() | list() | set() | frozenset():
            return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(_mask(str(value)), ensure_ascii=False)


def holds_secret(key: str, value: Any) -> bool:
    """Return True if the value of a key in a configuration file is masked, in whole or in part."""
    if isinstance(value, list | tuple):
        return any(holds_secret(key, each) for each in value)
    return _is_secret(key, value) or (isinstance(value, str) and _mask(value) != value)


def _is_secret(key: str, value: Any) -> bool:
    # Whoever knows the URL of a webhook can post to it.
    webhook = key == "deliver" and str(value).startswith(("http://", "https://"))
    return webhook or (not isinstance(value, Mapping) and bool(_SECRET_NAME.search(key)))


def _mask(text: str) -> str:
    """Mask the credentials and query of a URL, or the key in "#channel key"."""
    if url := _URL.match(text):
        scheme, host, path, rest = url.groups()
        user = f"{HIDDEN}@" if "@" in text.removeprefix(scheme).split("/")[0] else ""
        return f"{scheme}{user}{host}{path}" + (f"?{HIDDEN}" if rest else "")
    if not is_private(text) and " " in text:
        return f"{text.split()[0]} {HIDDEN}"
    return text

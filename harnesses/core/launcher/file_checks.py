"""The checks of `terrarium doctor` for files and secrets: permissions, strength and integrity."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from harnesses.core.addresses import table_settings
from harnesses.core.effective import holds_secret
from harnesses.core.tendril.status import CheckResult
from storage.db.address import PostgresSchema
from storage.db.database import NEEDS_EXTRA
from storage.db.errors import StorageError
from storage.db.integrity import describe_damage
from storage.db.private_files import data_files, mode_if_exposed
from storage.settings import StorageSettings, log_path
from terrarium.config import GOOD_SECRET_LENGTH, Config, is_short

_CHECK_TIMEOUT = 60.0  # seconds after which the integrity check of one file is cut short


def check_data(config: Config) -> CheckResult:
    """Check that the data folder is writable or, if it does not exist, can be created."""
    data = config.data
    folder = next(path for path in (data, *data.absolute().parents) if path.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        hint = "change its owner or choose another with --data DIR"
        return CheckResult("data", False, f"{folder} cannot be written; {hint}")
    return CheckResult("data", True, f"{data}" if data.exists() else f"{data} will be created")


def check_privacy(config: Config) -> CheckResult:
    """Check that other users of this machine can read neither the data nor secrets in a file."""
    paths = [config.data, *data_files(config.data)] if config.data.is_dir() else []
    log = log_path(config)
    if log.parent != config.data and log.exists():
        paths.append(log)
    if config.path and _has_secrets(config.tables):
        paths.append(config.path)
    loose = {path: mode for path in paths if (mode := mode_if_exposed(path))}
    if not loose:
        return CheckResult("privacy", True, "data and secrets are readable only by you")
    first, *others = loose
    more = f", and {len(others)} more" if others else ""
    hint = f"chmod go= {' '.join(map(str, [first, *others[:4]]))}"
    return CheckResult(
        "privacy", False, f"others can read {first} (mode {loose[first]:o}){more}; {hint}"
    )


def _has_secrets(values: Mapping[str, Any], table: str = "") -> bool:
    for key, value in values.items():
        if isinstance(value, Mapping):
            if _has_secrets(value, key):
                return True
        elif value and (holds_secret(key, value) or holds_secret(table, value)):
            return True  # `table`: in [server.keys] the keys of the table are names of clients
    return False


def check_secrets(config: Config) -> CheckResult:
    """Check that the owner's keys and tokens are too long to be guessed. Raises ConfigError."""

    def chosen() -> Iterator[tuple[str, SecretStr | None]]:
        server, web = table_settings(config, "server"), table_settings(config, "web")
        yield "[server] admin_key", server.get("admin_key")
        yield "[web] token", web.get("token")
        for name, secret in server.get("keys", {}).items():
            yield f"[server.keys] {name}", secret
        for table in ("tokens", "accounts"):
            for name, values in web.get(table, {}).items():
                yield f"[web.{table}.{name}] token", values["token"]

    weak = [name for name, secret in chosen() if secret and is_short(secret, GOOD_SECRET_LENGTH)]
    if not weak:
        return CheckResult("secrets", True, "all keys and tokens are long enough")
    hint = "`openssl rand -hex 24` makes a good one"
    return CheckResult(
        "secrets", False, f"fewer than {GOOD_SECRET_LENGTH} characters: {', '.join(weak)}; {hint}"
    )


def check_databases(config: Config) -> CheckResult:
    """Check the PostgreSQL database of `[storage] url` or, without one, the integrity of the SQLite
    files of the log, the tendrils and the server. Blocks."""
    if url := config.section(StorageSettings).url:
        address = PostgresSchema(url.get_secret_value(), "all stores")
        try:
            from storage.db.postgres.schemas import schema_versions

            versions = schema_versions(address)
        except ImportError:
            return CheckResult("database", False, NEEDS_EXTRA)
        except StorageError as error:
            return CheckResult("database", False, str(error))
        stores = ", ".join(f"{name} (version {version})" for name, version in versions.items())
        text = stores or "new: its tables are created at the first start"
        return CheckResult("database", True, f"{address}: {text}")
    data = config.data
    files = sorted({*data.glob("*.db"), *filter(Path.exists, [log_path(config)])})
    for path in files:
        try:
            finding = describe_damage(path, _CHECK_TIMEOUT)
        except StorageError as error:
            return CheckResult("files", False, str(error))
        if finding:
            hint = "stop everything, and put a backup in its place (docs/log.md, Damage)"
            return CheckResult("files", False, f"{path} is damaged ({finding}); {hint}")
    names = ", ".join(path.name for path in files)
    return CheckResult("files", True, f"{names}: no damage found" if names else "none yet")

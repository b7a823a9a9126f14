"""`terrarium doctor`: checks of every component, with advice on each failure."""

from __future__ import annotations

import asyncio
import os
import platform
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
from pydantic import SecretStr

from harnesses.core.addresses import read_up_file, table_settings, with_agent_address
from harnesses.core.effective import holds_secret
from harnesses.core.launcher.plan import LaunchPlan
from harnesses.core.launcher.readiness import (
    ask_for_token,
    irc_accepts,
    model_line,
    server_ready,
    unreachable,
)
from harnesses.core.launcher.settings import UpSettings
from harnesses.core.tendril.status import CheckResult, check_mcp_servers, examine_process
from llm.client.settings import AgentSettings
from llm.skills.registry import SkillRegistry
from storage.db.address import PostgresSchema
from storage.db.database import NEEDS_EXTRA
from storage.db.errors import StorageError
from storage.db.integrity import describe_damage
from storage.db.private_files import data_files, mode_if_exposed
from storage.settings import StorageSettings, log_path
from terrarium.config import GOOD_SECRET_LENGTH, Config, is_short

_REQUEST_TIMEOUT = 2.0  # request timeout in seconds
_CHECK_TIMEOUT = 60.0  # seconds after which the integrity check of one file is cut short
_ANTHROPIC_VERSION = "2023-06-01"  # API version: the header `anthropic-version` is mandatory


async def run_checks(config: Config) -> list[CheckResult]:
    """Check every component; return the results in the order of display. Raises ConfigError."""
    plan = LaunchPlan.from_config(config).with_actual_ports(read_up_file(config.data))
    versions = f"{platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    with sqlite3.connect(":memory:") as database:
        has_fts5 = ("ENABLE_FTS5",) in database.execute("PRAGMA compile_options").fetchall()
    lack = "" if has_fts5 else " without FTS5; use a Python whose SQLite has it"
    skills = SkillRegistry.read(config.data / "skills", SkillRegistry({}, {}))
    problems = "; ".join(skills.errors.values())
    async with httpx2.AsyncClient(trust_env=False) as http:
        findings = [
            CheckResult("python", has_fts5, f"{versions}{lack}"),
            CheckResult("config", True, config.name if config.path else "no file: all defaults"),
            check_data(config),
            check_privacy(config),
            check_secrets(config),
            await asyncio.to_thread(check_databases, config),
            CheckResult("skills", not problems, problems or ", ".join(sorted(skills.skills))),
            await check_model(table_settings(config, "model"), plan.upstream, http),
            await _check_server(config, http),
        ]
    if endpoint := plan.endpoint:
        text = f"{endpoint.host} port {endpoint.port} accepts connections"
        if missing := await irc_accepts(endpoint):
            hint = "`terrarium up` starts it" if endpoint.embedded else "see [irc] server"
            text = f"{missing}; {hint}"
        findings.append(CheckResult("irc server", not missing, text))
    findings += check_mcp_servers(config)
    names = config.section(UpSettings).tendrils
    return findings + [examine_process(config.data, name) for name in names]


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


async def check_model(
    model: Mapping[str, Any], urls: Sequence[str], http: httpx2.AsyncClient
) -> CheckResult:
    """Check the model file or, without one, that the upstream servers answer and accept the key."""
    file: Path | None = model["file"]
    if file is not None:
        if await asyncio.to_thread(file.is_file):
            return CheckResult("model", True, str(file))
        if model["pulled_name"] is not None:
            return CheckResult("model", True, f"{file.stem} will be pulled on the first start")
        text = f"{file} is not there; correct MODEL_PATH ([model] path)"
        return CheckResult("model", False, text)
    if away := await unreachable(http, urls):
        hint = "start it, or correct MODEL_UPSTREAM ([model] upstream)"
        return CheckResult("model", False, f"nothing answers at {', '.join(away)}; {hint}")
    secret: SecretStr | None = model["upstream_key"]
    key = secret.get_secret_value() if secret else None
    for url in urls:
        if await _is_refused(http, url, key, anthropic=model["api"] == "anthropic"):
            what = "rejects the key; correct" if key else "requires a key; set"
            text = f"{url} {what} MODEL_UPSTREAM_KEY ([model] upstream_key)"
            return CheckResult("model", False, text)
    return CheckResult("model", True, ", ".join(urls) or f"the hosted API of {model['api']}")


async def _is_refused(
    http: httpx2.AsyncClient, url: str, key: str | None, *, anthropic: bool = False
) -> bool:
    """Return True if the server refuses `key`, or its absence, on a request for its models."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    if anthropic:
        headers = {"anthropic-version": _ANTHROPIC_VERSION} | ({"x-api-key": key} if key else {})
    try:
        answer = await http.get(f"{url}/v1/models", headers=headers, timeout=_REQUEST_TIMEOUT)
    except httpx2.TransportError:
        return False  # other checks report a server that does not answer
    return answer.status_code in (401, 403)


async def _check_server(config: Config, http: httpx2.AsyncClient) -> CheckResult:
    """Check that the agent server accepts our key, and that its model generates a token."""
    agent = with_agent_address(config).section(AgentSettings)
    url, key = agent.server_url, agent.key
    if missing := await server_ready(http, url):
        hint = "`terrarium up` starts it, AGENT_API_URL names another"
        return CheckResult("server", False, f"{missing}; {hint}")
    if await _is_refused(http, url, key):
        what = "rejects the key; correct" if key else "requires a key; set"
        return CheckResult("server", False, f"{url} {what} AGENT_API_KEY ([agent] api_key)")
    if missing := await ask_for_token(http, url, key, agent.model):
        return CheckResult("server", False, f"{url}: {missing}")
    model = await model_line(http, url, agent)
    return CheckResult(
        "server", True, f"{url} answers" + (f"; {model}" if model else "").replace("\n", "; ")
    )

"""`terrarium doctor`: what is well, what is not, and what to do about it."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
from pydantic import SecretStr

from harnesses.core.addresses import table, with_agent_address
from harnesses.core.launcher.health import Finding, examine_process
from harnesses.core.launcher.model_line import model_line
from harnesses.core.launcher.plan import Irc, Plan
from harnesses.core.launcher.readiness import irc_accepts, server_ready, silent
from harnesses.core.launcher.settings import UpSettings
from llm.client.settings import AgentSettings
from llm.skills.shelf import Shelf
from terrarium.config import Config

_SLOW = 2.0  # seconds until a server that says nothing counts as away
_ANTHROPIC = "2023-06-01"  # the version of the Messages API


async def examine(config: Config) -> list[Finding]:
    """Look at every part of the Terrarium that `config` describes. Raises ConfigError."""
    plan = Plan.of(config)
    async with httpx2.AsyncClient(trust_env=False) as http:
        findings = [
            _python(),
            Finding("config", True, config.name if config.path else "no file: all defaults"),
            _data(config.data),
            _skills(config),
            await _model(config, plan, http),
            await _server(config, http),
        ]
    if plan.irc:
        findings.append(await _irc_server(plan.irc))
    names = config.section(UpSettings).tendrils
    return findings + [examine_process(config.data, name) for name in names]


def _python() -> Finding:
    text = f"{platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    with sqlite3.connect(":memory:") as database:
        options = [row[0] for row in database.execute("PRAGMA compile_options")]
    if "ENABLE_FTS5" in options:
        return Finding("python", True, text)
    return Finding("python", False, f"{text} without FTS5; use a Python whose SQLite has it")


def _data(data: Path) -> Finding:
    folder = next(path for path in (data, *data.absolute().parents) if path.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        hint = "change its owner or choose another with --data DIR"
        return Finding("data", False, f"{folder} cannot be written; {hint}")
    return Finding("data", True, f"{data}" if data.exists() else f"{data} will be made")


def _skills(config: Config) -> Finding:
    folder = config.data / config.section(AgentSettings).skills_dir
    shelf = Shelf.read(folder, Shelf({}, {}))
    if shelf.problems:
        return Finding("skills", False, "; ".join(shelf.problems.values()))
    return Finding("skills", True, ", ".join(sorted(shelf.skills)))


async def _model(config: Config, plan: Plan, http: httpx2.AsyncClient) -> Finding:
    values = table(config, "model")
    file: Path | None = values["file"]
    if file is None:
        return await _upstream(plan.upstream, values, http)
    return _model_file(file, is_pulled=values["pulled_name"] is not None)


def _model_file(file: Path, *, is_pulled: bool) -> Finding:
    if file.is_file():
        return Finding("model", True, str(file))
    if is_pulled:
        return Finding("model", True, f"{file.stem} will be pulled on the first start")
    return Finding("model", False, f"{file} is not there; correct MODEL_PATH ([model] path)")


async def _upstream(
    urls: Sequence[str], model: Mapping[str, Any], http: httpx2.AsyncClient
) -> Finding:
    """Whether the servers that have the model answer, and take the key."""
    away = await silent(http, urls)
    if away:
        hint = "start it, or correct MODEL_UPSTREAM ([model] upstream)"
        return Finding("model", False, f"nothing answers at {', '.join(away)}; {hint}")
    secret: SecretStr | None = model["upstream_key"]
    key = secret.get_secret_value() if secret else None
    for url in urls:
        if await _is_refused(http, url, key, anthropic=model["api"] == "anthropic"):
            what = "refuses the key; correct" if key else "asks for a key; set"
            return Finding(
                "model", False, f"{url} {what} MODEL_UPSTREAM_KEY ([model] upstream_key)"
            )
    return Finding("model", True, ", ".join(urls) or f"the hosted API of {model['api']}")


async def _is_refused(
    http: httpx2.AsyncClient, url: str, key: str | None, *, anthropic: bool = False
) -> bool:
    """Whether the list of models is kept from whoever has this key."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    if anthropic:
        headers = {"anthropic-version": _ANTHROPIC} | ({"x-api-key": key} if key else {})
    try:
        answer = await http.get(f"{url}/v1/models", headers=headers, timeout=_SLOW)
    except httpx2.TransportError:
        return False  # that is found out elsewhere
    return answer.status_code in (401, 403)


async def _irc_server(irc: Irc) -> Finding:
    missing = await irc_accepts(irc)()
    hint = "`terrarium up` brings it along" if irc.embedded else "see [irc] server and port"
    text = f"{missing}; {hint}" if missing else f"{irc.host} port {irc.port} takes connections"
    return Finding("irc server", not missing, text)


async def _server(config: Config, http: httpx2.AsyncClient) -> Finding:
    agent = with_agent_address(config).section(AgentSettings)
    url = agent.api_url.rstrip("/").removesuffix("/v1")
    if missing := await server_ready(http, url)():
        hint = "`terrarium up` starts it, AGENT_API_URL names another"
        return Finding("server", False, f"{missing}; {hint}")
    key = agent.api_key.get_secret_value() if agent.api_key else None
    if await _is_refused(http, url, key):
        what = "refuses the key; correct" if key else "asks for a key; set"
        return Finding("server", False, f"{url} {what} AGENT_API_KEY ([agent] api_key)")
    model = await model_line(http, url, agent)
    return Finding("server", True, f"{url} is ready" + (f"; {model}" if model else ""))

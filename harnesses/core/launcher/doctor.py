"""`terrarium doctor`: checks of every component, with advice on each failure."""

from __future__ import annotations

import asyncio
import platform
import sqlite3
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
from pydantic import SecretStr

from harnesses.core.addresses import table_settings, with_agent_address
from harnesses.core.launcher.file_checks import (
    check_data,
    check_databases,
    check_privacy,
    check_secrets,
)
from harnesses.core.launcher.plan import LaunchPlan
from harnesses.core.launcher.readiness import (
    ask_for_token,
    irc_accepts,
    model_line,
    server_ready,
    unreachable,
)
from harnesses.core.launcher.settings import UpSettings
from harnesses.core.tendril.status import CheckResult, examine_process, read_report
from harnesses.core.up_file import read_up_file
from llm.client.settings import AgentSettings
from llm.mcp.servers import HOW_TO_INSTALL
from llm.mcp.settings import McpSettings
from llm.skills.registry import SkillRegistry
from terrarium.config import Config

_REQUEST_TIMEOUT = 2.0  # request timeout in seconds
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


def check_mcp_servers(config: Config) -> list[CheckResult]:
    """Check each server of `[mcp.servers]` by the status files of its users. Raises ConfigError."""
    servers = config.section(McpSettings).servers
    if servers and find_spec("mcp") is None:
        text = f"[mcp.servers] names {', '.join(servers)}, which needs the extra: {HOW_TO_INSTALL}"
        return [CheckResult("mcp", False, text)]
    found = []
    for name, settings in servers.items():
        reports = [read_report(config.data, tendril) for tendril in settings.tendrils]
        said = [each for each in reports if each and each.is_fresh]
        away = [each for each in said if name in each.mcp_troubles]
        users = ", ".join(each.name for each in said)
        text = f"used by {users}" if users else "no tendril that may use it is running"
        if away:
            text = "; ".join(f"not connected to {e.name}: {e.mcp_troubles[name]}" for e in away)
        found.append(CheckResult(f"mcp {name}", not away, text))
    return found

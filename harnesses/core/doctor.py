"""`terrarium doctor`: what is well, what is not, and what to do about it."""

from __future__ import annotations

import asyncio
import os
import platform
import sqlite3
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import httpx2

from harnesses.core.addresses import table, with_agent_address
from harnesses.core.health import Finding, examine_process
from harnesses.core.plan import Irc, Plan, terrarium
from harnesses.core.readiness import irc_accepts, server_ready, silent
from harnesses.core.settings import UpSettings
from llm.settings import AgentSettings
from llm.skills.shelf import Shelf
from storage.config import Config


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
    if plan.upstream:
        away = await silent(http, plan.upstream)
        hint = "start it, or correct MODEL_UPSTREAM ([model] upstream)"
        text = f"nothing answers at {', '.join(away)}; {hint}"
        return Finding("model", not away, text if away else ", ".join(plan.upstream))
    path: Path | None = table(config, "model")["path"]
    if path is None:
        pulled = await _output(terrarium(config, "model", "list"))
        return Finding("model", True, pulled or "it will be pulled on the first start")
    return _model_file(path)


def _model_file(path: Path) -> Finding:
    there = path.is_file()
    text = f"{path} is not there; correct MODEL_PATH ([model] path)"
    return Finding("model", there, str(path) if there else text)


async def _irc_server(irc: Irc) -> Finding:
    missing = await irc_accepts(irc)()
    hint = "`terrarium up` brings it along" if irc.embedded else "see [irc] server and port"
    text = f"{missing}; {hint}" if missing else f"{irc.host} port {irc.port} takes connections"
    return Finding("irc server", not missing, text)


async def _server(config: Config, http: httpx2.AsyncClient) -> Finding:
    url = with_agent_address(config).section(AgentSettings).api_url.rstrip("/").removesuffix("/v1")
    missing = await server_ready(http, url)()
    hint = "`terrarium up` starts it, AGENT_API_URL names another"
    return Finding("server", not missing, f"{missing}; {hint}" if missing else f"{url} is ready")


async def _output(command: tuple[str, ...]) -> str:
    """What one of our own commands prints, on one line; nothing when it fails."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
    )
    printed, _ = await process.communicate()
    return (
        ", ".join(printed.decode().replace("\t", " ").splitlines())
        if not process.returncode
        else ""
    )

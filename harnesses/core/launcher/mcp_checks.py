"""The checks of `terrarium doctor` for the configured MCP servers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from harnesses.core.launcher.health import CheckResult
from harnesses.core.tendril.status import report
from llm.mcp.servers import HOW_TO_INSTALL
from llm.mcp.settings import McpServerSettings, McpSettings
from terrarium.config import Config


def check_mcp_servers(config: Config) -> list[CheckResult]:
    """Check each server of `[mcp.servers]` by the status files of the tendrils that may use it.
    Raises ConfigError."""
    servers = config.section(McpSettings).servers
    if servers and find_spec("mcp") is None:
        names = ", ".join(servers)
        text = f"[mcp.servers] names {names}, which needs the extra: {HOW_TO_INSTALL}"
        return [CheckResult("mcp", False, text)]
    return [_check(config.data, name, settings) for name, settings in servers.items()]


def _check(data: Path, name: str, settings: McpServerSettings) -> CheckResult:
    reports = [said for each in settings.tendrils if (said := report(data, each)) and said.is_fresh]
    away = {said.name: said.mcp_troubles[name] for said in reports if name in said.mcp_troubles}
    if away:
        text = "; ".join(f"not connected to {tendril}: {why}" for tendril, why in away.items())
        return CheckResult(f"mcp {name}", False, text)
    users = ", ".join(said.name for said in reports)
    text = f"used by {users}" if users else "no tendril that may use it runs"
    return CheckResult(f"mcp {name}", True, text)

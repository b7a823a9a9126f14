"""The addresses at which the processes of one configuration find each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from pydantic import SecretStr

from harnesses.core.up_file import RunningUp, read_up_file
from llm.client.settings import AgentSettings
from terrarium.config import Config, sections


def with_agent_address(config: Config) -> Config:
    """Return `config` with the agent server of this data folder, when `[agent]` names none.

    That is the one that `terrarium up` runs here, with the key that it has for local commands; else
    the one of the same file: [server] port and admin_key need not be written again as [agent]
    api_url and api_key. Where `[agent]` names the server of that `terrarium up`, its key is used as
    well.
    """
    agent, server = config.section(AgentSettings), table_settings(config, "server")
    running = read_up_file(config.data)
    if not server or ("api_url" in agent.model_fields_set and not _is_at(agent, running)):
        return config
    if running:
        address, key = running.server, running.key
    elif server["port"]:
        secret: SecretStr | None = server["admin_key"]
        address = url(server["host"], server["port"])
        key = secret.get_secret_value() if secret else ""
    else:
        return config
    values = {**config.tables.get("agent", {}), "api_url": address}
    if agent.api_key is None and key:
        values["api_key"] = key
    return replace(config, tables={**config.tables, "agent": values})


def _is_at(agent: AgentSettings, running: RunningUp | None) -> bool:
    """Return True if [agent] api_url is the server that runs."""
    return running is not None and agent.api_url.rstrip("/").removesuffix("/v1") == running.server


def table_settings(config: Config, name: str) -> Mapping[str, Any]:
    """Return the settings of a table by its name, {} when no package owns such a table.

    For callers that must not import the owner.

    Raises ConfigError.
    """
    kind = sections().get(name)
    return config.section(kind).model_dump() if kind else {}


def url(host: str, port: int) -> str:
    """Return the URL of a web server that listens on `host`, for clients on this machine."""
    return f"http://{url_host(connect_host(host))}:{port}"


def connect_host(host: str) -> str:
    """Return the host to connect to for a host that is listened on: 0.0.0.0 means loopback."""
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "::1"
    return str(address)


def url_host(host: str) -> str:
    """Return a host as it is written in a URL, an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host

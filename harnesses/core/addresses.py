"""The addresses at which the processes of one configuration find each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from pydantic import SecretStr

from llm.client.settings import AgentSettings
from terrarium.config import Config, sections


def with_agent_address(config: Config) -> Config:
    """Return `config` with the agent server of the same file, when `[agent]` names none.

    So [server] port and admin_key need not be written again as [agent] api_url and api_key.
    """
    agent, server = config.section(AgentSettings), table_settings(config, "server")
    if "api_url" in agent.model_fields_set or not server or not server["port"]:
        return config
    values = {**config.tables.get("agent", {}), "api_url": url(server["host"], server["port"])}
    key: SecretStr | None = server["admin_key"]
    if agent.api_key is None and key is not None:
        values["api_key"] = key.get_secret_value()
    return replace(config, tables={**config.tables, "agent": values})


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

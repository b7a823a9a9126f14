"""Where the parts of one Terrarium find each other, out of one configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from pydantic import SecretStr

from llm.client.settings import AgentSettings
from terrarium.config import Config, sections


def with_agent_address(config: Config) -> Config:
    """`config` with the agent server of the same file as the one to ask, when none is named.

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
    """The settings of a table by name, for those who must not know its owner; {} without one.

    Raises ConfigError.
    """
    kind = sections().get(name)
    return config.section(kind).model_dump() if kind else {}


def url(host: str, port: int) -> str:
    """The address of a web server that listens on `host`, as a client on this machine uses it."""
    return f"http://{url_host(connect_host(host))}:{port}"


def connect_host(host: str) -> str:
    """The host to connect to for one that is listened on: "all addresses" means loopback."""
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "::1"
    return str(address)


def url_host(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host

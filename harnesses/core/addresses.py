"""The addresses under which the processes of one configuration reach each other."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from socket import socket
from typing import Any

from pydantic import SecretStr

from harnesses.core.errors import PortTaken, TendrilError
from harnesses.core.up_file import read_up_file
from llm.client.settings import AgentSettings
from terrarium.config import Config, sections
from terrarium.sockets import listen


def with_agent_address(config: Config, tendril: str | None = None) -> Config:
    """Return `config` with the address and key of the local agent server, if `[agent]` names none.

    The local server is that of a `terrarium up` that runs on this data folder, with its launch key
    for local commands. Without one it is the server of `[server]`: its `port` need not be repeated
    as `api_url`, nor its key as `api_key`. That is the key of `tendril` in `[server.keys]`, or for
    a command of the owner, which has no `tendril`, the `admin_key`. A configured `api_key` takes
    precedence. If `[agent]` names the server of that `terrarium up` without a key, the launch key
    is added.
    """
    agent, server = config.section(AgentSettings), table_settings(config, "server")
    running = read_up_file(config.data)
    is_ours = running is not None and agent.server_url == running.server
    if not server or ("api_url" in agent.model_fields_set and not is_ours):
        return config
    if running:
        address, key = running.server, running.key
    elif server["port"]:
        # A process that reads messages from strangers must not have the admin key.
        secret: SecretStr | None = server["keys"].get(tendril) if tendril else server["admin_key"]
        address = url(server["host"], server["port"])
        key = secret.get_secret_value() if secret else ""
    else:
        return config
    values = {**config.tables.get("agent", {}), "api_url": address}
    if agent.api_key is None and key:
        values["api_key"] = key
    return replace(config, tables={**config.tables, "agent": values})


def irc_networks(config: Config) -> list[str]:
    """Return the names of the configured IRC networks; without any the table [irc] itself is the
    network "irc"."""
    table = config.tables.get("irc", {})
    return list(table.get("networks", {}) if isinstance(table, Mapping) else {}) or ["irc"]


def table_settings(config: Config, name: str) -> Mapping[str, Any]:
    """Return the settings of a table by its name, or {} if no package defines that table.

    It is for callers that must not import the `Settings` class of another package. Raises
    ConfigError.
    """
    kind = sections().get(name)
    return config.section(kind).model_dump() if kind else {}


def url(host: str, port: int) -> str:
    """Return the URL at which clients on this machine reach a server that listens on `host`."""
    with suppress(ValueError):  # the name of a host
        address = ip_address(host.strip("[]"))
        host = str(address)
        if address.is_unspecified:  # 0.0.0.0 or ::, which cannot be connected to portably
            host = "127.0.0.1" if address.version == 4 else "::1"
    return f"http://{url_host(host)}:{port}"


def url_host(host: str) -> str:
    """Return a host in the form for a URL: an IPv6 address in brackets (RFC 3986, 3.2.2)."""
    return f"[{host}]" if ":" in host else host


def listen_on(host: str, port: int, variable: str, key: str) -> socket:
    """Return a socket that listens; `variable` and `key` are the settings of its port. Raises
    PortTaken, and TendrilError for an unusable address."""
    try:
        return listen(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(host, port, variable, key) from error
        raise TendrilError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another port"
            f" with {variable}=PORT or `{key}` in terrarium.toml, or another host"
        ) from error

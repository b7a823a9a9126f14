"""The addresses under which the processes of one configuration reach each other, and the paths of
the pages of the web tendril.

The up file `DATA/run/up.json` says how other commands reach a running `terrarium up`. Only its
owner can read it (mode 600), because it contains an API key of the agent server. It is removed when
`up` ends; a file left behind by a killed `up` is ignored.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC
from ipaddress import ip_address
from pathlib import Path
from socket import socket
from typing import Any
from urllib.parse import quote, urlencode

from pydantic import BaseModel, SecretStr, ValidationError

from harnesses.core.errors import PortTaken, TendrilError
from llm.client.settings import AgentSettings
from storage.chat_log.event import Event, Place
from storage.db.private_files import make_file
from storage.db.process_lock import is_held
from terrarium.config import Config, sections
from terrarium.sockets import listen

_UP_FILE = Path("run", "up.json")


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


class RunningUp(BaseModel):
    """The process id of `terrarium up`, the URLs of its servers, and the key for local commands.

    `irc_port` is the port of the embedded IRC server, None if another IRC server is used; `setup`
    the token of the page that writes the first configuration file, "" if there is a file.
    """

    pid: int
    server: str
    web: str | None
    irc_port: int | None
    key: str
    setup: str = ""


def read_up_file(data: Path) -> RunningUp | None:
    """Return the up file of a data folder; None if no `terrarium up` runs there, or if the file
    cannot be read, as by another user."""
    try:
        running = RunningUp.model_validate_json((data / _UP_FILE).read_bytes())
    except (OSError, ValidationError):
        return None
    # A process id alone proves nothing: it may have been reused since `up` was killed, which is
    # common in containers. It is checked first because a probe of a free lock takes it for a
    # moment, in which an `up` could not start.
    try:
        os.kill(running.pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:  # somebody else's process
        pass
    return running if is_held(data, "up") else None


@contextmanager
def published_up_file(data: Path, running: RunningUp) -> Iterator[None]:
    """Write the up file, and remove it on leaving. Raises OSError."""
    path = data / _UP_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    # The rename is atomic, so that no reader sees a part of it.
    written = path.with_suffix(".tmp")
    make_file(written)
    written.write_text(running.model_dump_json(), encoding="utf-8")
    written.replace(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def channel_path(place: Place, page: str = "channel", /, **query: object) -> str:
    """Return the path of a channel's page, or of another `page` about the channel, with a query
    string. Parameters that are None or "" are left out."""
    path = f"/{page}/{quote(place.network, safe='')}/{quote(place.channel, safe='')}"
    return with_query(path, **query)


def with_query(path: str, /, **query: object) -> str:
    """Return a path with a query string; parameters that are None or "" are left out."""
    wanted = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(wanted)}" if wanted else path


def permalink(event: Event) -> str:
    """Return the path of the page that shows an event in its context.

    It includes channel, time and id, so that a reader can find the line even in another copy of the
    log, where the id may belong to another event.
    """
    return f"{channel_path(Place(event.network, event.channel))}{relative_permalink(event)}"


def short_link(event: Event) -> str:
    """Return a short path that redirects to the permalink of an event, for use in chat lines."""
    return f"/line/{event.id}"


def relative_permalink(event: Event) -> str:
    """Return the permalink of an event relative to the page of its channel."""
    time = f"{event.time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return f"?at={event.id}&time={time}#e{event.id}"

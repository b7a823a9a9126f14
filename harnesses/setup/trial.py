"""A trial of a first configuration: connects to the servers that it names.

Run as a program, it reads the tables as JSON from its standard input and prints the findings, a
line each; with the argument `check` it only validates them. The page for the setup runs it so, as
tendrils do not import one another.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import httpx2

from harnesses.core.addresses import table_settings
from harnesses.core.launcher.doctor import check_model
from harnesses.core.launcher.supervisor import EX_CONFIG
from harnesses.irc.session.registration import login_problem
from harnesses.irc.session.session import Session
from harnesses.irc.settings import NetworkSettings, networks
from harnesses.irc.transport.connection import IrcConnection, explain
from terrarium.config import FILE, Config, ConfigError
from terrarium.logging import configure_child

_TELL_ACCOUNTS = frozenset({"account-notify", "account-tag", "extended-join"})
"""The capabilities of which one is needed to recognise people by their accounts."""

_LOGIN_TIMEOUT, _QUIT_TIMEOUT = 30.0, 2.0  # seconds


async def connect(config: Config) -> list[str]:
    """Connect to the servers that `config` names; return which of them can be used, as lines."""
    found = []
    async with httpx2.AsyncClient(trust_env=False) as http:
        model = table_settings(config, "model")
        finding = await check_model(model, model["upstream"], http)
        if not finding.ok:
            found.append(f"The model: {finding.text}.")
    if "server" in config.tables["irc"]:
        (settings,) = networks(config).values()
        reached, problem = await try_login(settings)
        found.append(f"{settings.server}: {'; '.join(filter(None, (reached, problem)))}")
    return found


async def try_login(settings: NetworkSettings) -> tuple[str, str]:
    """Connect, log in and quit without joining a channel. Return what was reached, and the problem
    or ""; both are for people. `settings` must name a server."""
    assert settings.server
    session = Session("irc", settings, {}, encrypted=settings.tls)
    ready = asyncio.Event()
    connection = IrcConnection(
        session,
        on_event=lambda _event: None,
        changed=lambda: ready.set() if session.is_ready else None,
        may_speak=lambda: False,
        plugins=None,
        silence=_LOGIN_TIMEOUT,
    )
    try:
        await connection.open(settings.server, settings.port)
        lost = asyncio.create_task(connection.wait_closed())
        welcomed = asyncio.create_task(ready.wait())
        await asyncio.wait(
            [lost, welcomed], timeout=_LOGIN_TIMEOUT, return_when=asyncio.FIRST_COMPLETED
        )
        if not ready.is_set():
            fault = lost.result() if lost.done() else "the server does not answer"
            if session.upgrade:
                fault = f"the server asks for TLS: set tls = true, port = {session.upgrade}"
            return "", session.error or str(fault or "the server closed the connection")
        connection.send_line("QUIT :Just checking", urgent=True)
        await connection.wait_disconnected(_QUIT_TIMEOUT)
    except (OSError, UnicodeError) as error:
        return "", explain(error, settings.port, settings.tls)
    finally:
        connection.close()
    account = f", logged in as {session.sasl.account}" if session.sasl.account else ""
    problem = login_problem(session)
    names = [each for each in settings.admins if "@" not in each]
    if names and _TELL_ACCOUNTS.isdisjoint(session.offered):
        problem = problem or (
            "this server does not tell who is logged in to which account, so that"
            f" {', '.join(names)} is not recognised as an admin: write a mask, such as *!*@host"
        )
    return f"connected as {session.nick}{account}", problem


def main() -> None:
    """Validate the tables, and try them; exit with EX_CONFIG if they are not valid."""
    configure_child("setup")
    config = Config(json.load(sys.stdin), FILE, Path("data"))
    lines, status = list[str](), 0
    try:
        config.check()
        if sys.argv[1:] != ["check"]:
            lines = asyncio.run(connect(config))
    except ConfigError as error:
        lines, status = [str(error)], EX_CONFIG
    sys.stdout.write("\n".join(lines))
    sys.exit(status)


if __name__ == "__main__":
    main()

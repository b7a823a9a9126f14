"""Public IRC networks that `terrarium init` knows, and an attempt to connect to one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from harnesses.irc.session.registration import login_problem
from harnesses.irc.session.session import Session
from harnesses.irc.settings import NetworkSettings
from harnesses.irc.transport.connection import IrcConnection, explain

MARK = "🤖 "
"""The default mark of answers that a model has written, on public networks."""

_TELL_ACCOUNTS = frozenset({"account-notify", "account-tag", "extended-join"})
"""The capabilities of which one is needed to recognise people by their accounts."""

_LOGIN_TIMEOUT, _QUIT_TIMEOUT = 30.0, 2.0  # seconds


@dataclass(frozen=True, slots=True)
class PublicNetwork:
    """A network with its rules for bots, as lines for their owners.

    `login` is the setting for the password of the bot's account. TLS is on port 6697.
    """

    title: str
    server: str
    login: str
    register: str
    rules: tuple[str, ...]


_OPERATORS = "Ask the operators of each channel before the bot joins it."

PUBLIC_NETWORKS = {
    "libera": PublicNetwork(
        "Libera.Chat",
        "irc.libera.chat",
        "sasl_password",
        "/msg NickServ REGISTER PASSWORD you@example.org    (as the bot's nick)",
        (
            f"{_OPERATORS} Without their explicit permission it must not join.",
            "The bot must be recognisable as one, and say whose it is: keep `realname` and `mark`.",
            "What a model reads counts as publicly logged: the topic or the entry message must"
            " say so.",
            "Policy as of May 2026; the current one is at https://libera.chat/policies",
        ),
    ),
    "oftc": PublicNetwork(
        "OFTC",
        "irc.oftc.net",
        "nickserv_password",
        "/msg NickServ REGISTER PASSWORD you@example.org    (as the bot's nick)",
        (_OPERATORS, "The current rules are at https://www.oftc.net"),
    ),
    "hackint": PublicNetwork(
        "hackint",
        "irc.hackint.org",
        "sasl_password",
        "/msg NickServ REGISTER PASSWORD you@example.org    (as the bot's nick)",
        (
            f"{_OPERATORS} A public log needs the permission of the channel's owners.",
            "The current rules are at https://www.hackint.org",
        ),
    ),
}


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

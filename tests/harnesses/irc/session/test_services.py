"""Logging in on InspIRCd with Atheme: what a scripted server cannot be wrong about."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from structlog.testing import capture_logs

from harnesses.irc.transport.networks import describe_presence
from tests.kit.certificates import certificate
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.irc_network import Ears, joined
from tests.kit.patience import PATIENCE, until
from tests.kit.services import Services, services_network

LOGIN: dict[str, Any] = {"sasl_username": "Account", "sasl_password": "sesame"}


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[Services]:
    async with services_network(tmp_path) as network:
        yield network


async def account_of(nick: str, client: IrcClient) -> str | None:
    """The account that the server knows somebody by."""
    await client.send(f"WHOIS {nick}")
    match = await client.expect(r" 330 \S+ \S+ (\S+) :| 318 ")
    return match[1]


@pytest.mark.parametrize("mechanism", ["PLAIN", ""])
async def test_a_password_logs_us_in(mechanism: str, network: Services) -> None:
    settings = {"tls": True, "tls_verify": False, "sasl": mechanism, **LOGIN}
    async with network.running() as owner, joined(network.tls_port, Ears(), **settings) as bot:
        assert await account_of("Terra", owner) == "Account"
        assert describe_presence(bot) == "Terra on #c of net, logged in as Account"


async def test_our_certificate_logs_us_in(network: Services, tmp_path: Path) -> None:
    ours = certificate(tmp_path, "client")
    async with network.running() as owner:
        fingerprint = ours.fingerprint.replace(":", "").lower()
        await owner.ask(f"CERT ADD {fingerprint}", "[Aa]dded", room="NickServ")
        settings: dict[str, Any] = {"tls": True, "tls_verify": False, "tls_cert": ours.path}
        async with joined(network.tls_port, Ears(), sasl="EXTERNAL", **settings):
            assert await account_of("Terra", owner) == "Account"


async def test_our_key_logs_us_in(network: Services) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    point = key.public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    async with network.running() as owner:
        await owner.say("NickServ", f"SET PUBKEY {base64.b64encode(point).decode()}")
        await owner.expect("[Pp]ubkey|PUBKEY|public key")
        settings: dict[str, Any] = {"sasl_username": "Account", "sasl_key": pem}
        async with joined(network.ircd.port, Ears(), **settings):
            assert await account_of("Terra", owner) == "Account"


@pytest.mark.parametrize("password", ["wrong", "long" * 100])
async def test_a_refused_password_does_not_keep_us_out(password: str, network: Services) -> None:
    settings = {"sasl": "PLAIN", "sasl_username": "Account", "sasl_password": password}
    with capture_logs() as logs:
        async with network.running() as owner, joined(network.ircd.port, Ears(), **settings):
            assert await account_of("Terra", owner) is None
    (failure,) = [log for log in logs if log["event"] == "irc.sasl_failed"]
    assert failure["numeric"] == "904"


async def test_services_may_be_down_and_come_back(network: Services) -> None:
    settings = {"sasl": "PLAIN", **LOGIN}
    async with (
        joined(network.ircd.port, Ears(), **settings) as ours,
        irc_client(network.ircd.port, "alice") as alice,
    ):
        assert await account_of("Terra", alice) is None
        assert await ours.say("PRIVMSG", "#c", "still here") == ["still here"]
        async with network.running(), asyncio.timeout(PATIENCE):
            # Services begin anew, so the account may come after our first attempt to log in.
            assert await ours.say("PRIVMSG", "#c", "and here") == ["and here"]
        assert await ours.say("PRIVMSG", "#c", "and without them") == ["and without them"]


async def test_nickserv_is_told_where_there_is_no_sasl(network: Services) -> None:
    settings = {"nick": "Account", "nickserv_password": "sesame"}
    async with (
        network.running() as owner,
        irc_client(network.ircd.port, "alice") as alice,
        joined(network.ircd.port, Ears(), **settings) as ours,
    ):
        # Its owner has the nick: NickServ sends them away, for we know the password.
        await owner.expect("ERROR|KILL")
        await until(lambda: ours.nick == "Account")  # we share no channel with who would tell
        assert await account_of("Account", alice) == "Account"

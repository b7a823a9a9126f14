"""Logging in on InspIRCd with Atheme, and to whom else NickServ's password is not told."""

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

from harnesses.irc.session.registration import claim_nick
from harnesses.irc.settings import NetworkSettings
from harnesses.irc.transport.networks import describe
from tests.kit.certificates import certificate
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.irc_network import Ears, joined
from tests.kit.irc_session import WELCOME, Story
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
        assert describe(bot) == "Terra on #c of net, logged in as Account"


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


SERVICES = ":s 311 Terra NickServ N services.example * :Nickname services"
IS_SERVICE = ":s 313 Terra NickServ :is a Network Service"
END = ":s 318 Terra NickServ :End of WHOIS"
STRANGER = ":s 311 Terra NickServ mallory evil.example * :mallory"


def welcomed(*, encrypted: bool = True, **settings: Any) -> Story:
    """A session that has been welcomed, and has a password for NickServ."""
    story = Story([], encrypted=encrypted, nickserv_password="secret", **settings)
    story.feed(*WELCOME)
    return story


def test_services_are_told_once_the_server_or_the_mask_of_the_settings_says_it_is_they() -> None:
    story = welcomed()
    assert story.sent() == ["WHOIS NickServ"]
    assert story.reply(SERVICES, IS_SERVICE) == []
    assert story.reply(END) == ["PRIVMSG NickServ :IDENTIFY secret"]
    mask = "nickserv!*@services.example"
    story = welcomed(nickserv_mask=mask)
    assert story.reply(SERVICES, END) == ["WHOIS NickServ", "PRIVMSG NickServ :IDENTIFY secret"]
    story = welcomed(nickserv_mask=mask)
    with capture_logs():
        story.feed(STRANGER, IS_SERVICE, END)
    assert story.sent() == ["WHOIS NickServ"]


@pytest.mark.parametrize("answer", [[STRANGER], [":s 401 Terra NickServ :No such nick"]])
def test_who_is_merely_called_nickserv_is_not_told_the_password(answer: list[str]) -> None:
    story = welcomed()
    with capture_logs():
        story.feed(*answer, END)
    assert story.sent() == ["WHOIS NickServ"]


def test_nobody_is_told_the_password_on_a_connection_that_others_can_read() -> None:
    with capture_logs() as logs:
        story = welcomed(encrypted=False)
    assert story.reply(SERVICES, IS_SERVICE, END) == []
    assert [log["event"] for log in logs] == ["irc.nickserv_not_told"]


def test_a_whois_that_stays_unanswered_does_not_keep_the_password_back_for_ever() -> None:
    story = welcomed()
    assert story.sent() == ["WHOIS NickServ"]
    settings = NetworkSettings(nick="Gaia", nickserv_password="secret", server="irc.example")
    claim_nick(story.session, settings)
    assert story.sent().count("WHOIS NickServ") == 2
    assert story.reply(SERVICES, IS_SERVICE, END) == [
        "PRIVMSG NickServ :IDENTIFY secret",
        "PRIVMSG NickServ :IDENTIFY Gaia secret",
        "PRIVMSG NickServ :GHOST Gaia secret",
    ]

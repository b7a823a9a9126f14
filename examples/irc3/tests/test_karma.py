"""Test of the karma plugin in an IRC tendril on the embedded server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.irc_client import irc_client
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril
from tests.kit.ircd import embedded_ircd

pytestmark = [pytest.mark.ircd, pytest.mark.process, pytest.mark.server]


async def test_a_plugin_of_the_configuration_hears_and_answers(tmp_path: Path) -> None:
    async with embedded_ircd() as ircd, irc_client(ircd.port, "alice") as alice:
        config = irc_config(
            tmp_path, ircd.port, "http://127.0.0.1:9/v1", irc={"plugins": ["karma"]}
        )
        async with irc_tendril(config):
            await alice.join(ROOM)
            for line in ("bob++", "Bob++", "alice++", "!karma bob"):
                await alice.say(ROOM, line)
            await alice.expect(rf"PRIVMSG {ROOM} :bob has 2")
            await alice.say(ROOM, "!karma alice")
            await alice.expect(rf"PRIVMSG {ROOM} :alice has 0")

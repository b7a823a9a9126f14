"""The IRC tendril's metrics, on a real network."""

from __future__ import annotations

from pathlib import Path

from tests.kit.irc_client import irc_client
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril
from tests.kit.ircd import embedded_ircd
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import until


async def test_lines_channels_lag_and_a_lost_connection_are_counted(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        embedded_ircd() as ircd,
        irc_tendril(irc_config(tmp_path, ircd.port, script.url)) as tendril,
    ):
        async with irc_client(ircd.port, "alice") as alice:
            await alice.join(ROOM)
            await alice.say(ROOM, ".ping")
            await alice.expect("pong")
        (network,) = tendril.networks.values()
        assert network._connection
        network._connection._abort()
        await until(lambda: network.losses and network.connected.is_set())
        await tendril.measure()
        counters, gauges = tendril.metrics.counters, tendril.metrics.gauges
        assert (counters["reconnects"], counters["refused"]) == (1, 0)
        assert counters["lines"] >= 2
        assert (gauges["networks_connected"], gauges["outbox"]) == (1, 0)
        assert 0 < gauges["lag_seconds"] < 30

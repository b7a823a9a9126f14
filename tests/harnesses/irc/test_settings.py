"""The tables `[irc]` and `[irc.networks.NAME]`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harnesses.irc.channel_settings import ChannelKeys
from harnesses.irc.settings import IrcSettings, NetworkSettings, networks
from terrarium.config import Config, ConfigError


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """The environment as a user would set it, for a while."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def config(**irc: Any) -> Config:
    tables: Mapping[str, Any] = {"irc": irc} if irc else {}
    return Config(tables, Path("terrarium.toml"), Path("data"))


def test_the_defaults_are_terra_on_terrarium_and_tls_has_its_own_port() -> None:
    settings = config().section(IrcSettings)
    assert (settings.server, settings.port, settings.nick) == (None, 6667, "Terra")
    assert (settings.channels, settings.command_prefix) == (("#terrarium",), ".")
    assert config(channels=["#a key", "+b"]).section(IrcSettings).channels == ("#a key", "+b")
    assert config(server="irc.example", tls=True).section(IrcSettings).port == 6697
    assert config(server="irc.example", tls=True, port=7000).section(IrcSettings).port == 7000


@pytest.mark.parametrize("name", ["COMMAND_PREFIX", "IRC_COMMAND_PREFIX"])
def test_the_environment_wins_and_lists_have_commas(name: str) -> None:
    with environment(IRC_SERVER="irc.example", IRC_CHANNELS="#a, #b", **{name: "!"}):
        settings = config(server="other", channels=["#x"]).section(IrcSettings)
    assert (settings.server, settings.channels) == ("irc.example", ("#a", "#b"))
    assert settings.command_prefix == "!"


def test_the_table_itself_is_one_network() -> None:
    found = networks(config(server="irc.example", nick="Gaia"))
    assert list(found) == ["irc"]
    assert found["irc"].nick == "Gaia"


def test_several_networks_have_their_own_keys_and_variables() -> None:
    tables = {"one": {"server": "a.example"}, "two": {"server": "b.example", "tls": True}}
    with environment(IRC_NETWORKS_TWO_NICK="Gaia", NICK="nobody", PORT="1"):
        found = networks(config(networks=tables))
    assert {name: (n.server, n.port, n.nick) for name, n in found.items()} == {
        "one": ("a.example", 6667, "Terra"),
        "two": ("b.example", 6697, "Gaia"),
    }


@pytest.mark.parametrize(
    ("irc", "said"),
    [
        (
            {"networks": {"one": {"sever": "x"}}},
            'unknown key "sever" in one; the nearest known key is "server"',
        ),
        ({"networks": {"one": {"server": "x", "port": 0}}}, "[irc.networks.one] port"),
        ({"networks": {"one": {}}}, "[irc.networks.one] has no server"),
        ({"nick": "two words", "server": "x"}, "[irc] nick"),
        ({"nikc": "Terra"}, 'unknown key "nikc" in [irc]; the nearest known key is "nick"'),
        ({"networks": {"Web": {"server": "x"}}}, '"Web" cannot be the name of a network'),
        ({"port": 6668}, "[up] irc_port"),
        ({}, "set IRC_SERVER"),
    ],
)
def test_a_mistake_is_named(irc: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        networks(config(**irc))
    assert said in str(caught.value)


def test_passwords_do_not_show() -> None:
    settings = NetworkSettings(server="x", password="hunter2", nickserv_password="hunter3")
    assert "hunter" not in repr(settings)


def test_what_differs_on_a_channel_is_a_table_of_its_name() -> None:
    settings = config(server="irc.example", channel={"#quiet": {"logging": False}})
    assert networks(settings)["irc"].channel == {"#quiet": ChannelKeys(logging=False)}
    several = config(networks={"net": {"server": "irc.example", "channel": {"*": {"model": "m"}}}})
    assert networks(several)["net"].channel == {"*": ChannelKeys(model="m")}


def test_a_wrong_key_of_a_channel_is_named_with_the_nearest() -> None:
    wrong = config(server="irc.example", channel={"#c": {"line_buget": 2}})
    with pytest.raises(ConfigError, match=r'channel\.#c: unknown key "line_buget".*"line_budget"'):
        networks(wrong)
    with pytest.raises(ConfigError, match=r"\[irc\] channel\.#c\.line_budget"):
        networks(config(server="irc.example", channel={"#c": {"line_budget": 0}}))


@pytest.mark.parametrize("name", ["0bad", "#a b c", "#a,#b", "", "#:x"])
def test_what_is_no_name_of_a_channel_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="not the name of a channel"):
        config(channels=[name]).section(IrcSettings)

"""The table [web]."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harnesses.web.settings import WebSettings
from terrarium.config import Config, ConfigError
from terrarium.loopback import is_loopback


def read(**table: Any) -> WebSettings:
    return Config({"web": table}, None, Path("data")).section(WebSettings)


def test_only_this_machine_can_reach_it_by_default() -> None:
    settings = read()
    assert (settings.host, settings.port, settings.token) == ("127.0.0.1", 8081, None)


def test_an_open_host_without_a_token_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0 can be reached by others.*set WEB_TOKEN"):
        read(host="0.0.0.0")


def test_an_empty_token_is_no_token() -> None:
    assert read(token="").token is None
    with pytest.raises(ConfigError, match="set WEB_TOKEN"):
        read(host="::", token="")


def test_an_open_host_with_a_token_is_fine() -> None:
    settings = read(host="0.0.0.0", token="frogs-are-awake")
    assert settings.token is not None
    assert "frogs" not in repr(settings)


def test_a_token_that_no_header_can_carry_is_refused() -> None:
    with pytest.raises(ConfigError, match="ASCII without spaces"):
        read(token="frösche sind wach")


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "127.3.2.1", "::1", "[::1]"])
def test_loopback_names_are_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "localhost.evil.example", "10.0.0.1"])
def test_other_names_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_a_token_for_some_channels_hides_itself_and_names_channels() -> None:
    guests = {"token": "frogs-are-awake", "channels": ["irc/#a"]}
    settings = read(token="all", tokens={"guests": guests})
    assert settings.tokens["guests"].channels == ("irc/#a",)
    assert "frogs" not in repr(settings)


@pytest.mark.parametrize("channel", ["#a", "irc/ada", "irc/", "/#a", "ada"])
def test_what_is_no_channel_can_be_opened_to_nobody(channel: str) -> None:
    with pytest.raises(ConfigError, match="network/#channel"):
        read(token="all", tokens={"guests": {"token": "some", "channels": [channel]}})
    with pytest.raises(ConfigError, match="network/#channel"):
        read(public=[channel])


def test_tokens_for_some_channels_need_one_for_the_rest() -> None:
    with pytest.raises(ConfigError, match="set WEB_TOKEN"):
        read(tokens={"guests": {"token": "some", "channels": ["irc/#a"]}})


@pytest.mark.parametrize("origin", ["*", "null", "friend.example", "https://friend.example/"])
def test_a_site_that_may_read_is_named_as_an_origin(origin: str) -> None:
    with pytest.raises(ConfigError, match="https://host"):
        read(cors_origins=[origin])


def test_the_public_address_is_one_that_a_link_can_begin_with() -> None:
    assert read(public_url="https://logs.example.org/irc/").public_url == (
        "https://logs.example.org/irc"
    )
    for wrong in ("logs.example.org", "ftp://logs.example.org", "https://", "https://a?b=c"):
        with pytest.raises(ConfigError, match=r"\[web\] public_url: write"):
            read(public_url=wrong)

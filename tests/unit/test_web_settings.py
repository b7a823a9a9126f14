"""The table [web]."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harnesses.web.settings import WebSettings
from llm.loopback import is_loopback
from storage.config import Config, ConfigError


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

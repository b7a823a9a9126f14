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


GUESTS = {"token": "frogs-are-awake", "channels": ["irc/#a"]}


def test_only_this_machine_can_reach_it_by_default() -> None:
    settings = read()
    assert (settings.host, settings.port, settings.token) == ("127.0.0.1", 8081, None)
    assert read(token="").token is None
    settings = read(host="0.0.0.0", token="frogs-are-awake", tokens={"guests": GUESTS})
    assert settings.token is not None
    assert settings.tokens["guests"].channels == ("irc/#a",)
    assert "frogs" not in repr(settings)
    settings = read(public_url="https://logs.example.org/irc/")
    assert settings.public_url == "https://logs.example.org/irc"


def test_loopback_names_are_known_and_others_are_none() -> None:
    assert all(map(is_loopback, ("localhost", "a.localhost", "127.3.2.1", "::1", "[::1]")))
    assert not any(map(is_loopback, ("", "0.0.0.0", "::", "localhost.evil.example", "10.0.0.1")))


def test_an_open_host_without_a_token_is_refused_with_what_to_do() -> None:
    for table in ({"host": "0.0.0.0"}, {"host": "::", "token": ""}):
        with pytest.raises(ConfigError, match=r"can be reached by others.*set WEB_TOKEN"):
            read(**table)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"token": "frösche sind wach"}, "ASCII without spaces"),
        ({"tokens": {"guests": GUESTS}}, "set WEB_TOKEN"),
        ({"tokens": {"guests": GUESTS | {"chanels": []}}}, 'nearest known key is "channels"'),
        *(
            ({"token": "all", "tokens": {"guests": GUESTS | {"channels": [each]}}}, "/#channel")
            for each in ("#a", "irc/ada", "irc/", "/#a", "ada")
        ),
        *(({"public": [each]}, "network/#channel") for each in ("#a", "irc/ada", "ada")),
        *(
            ({"cors_origins": [each]}, "https://host")
            for each in ("*", "null", "friend.example", "https://friend.example/")
        ),
        *(
            ({"public_url": each}, r"\[web\] public_url: write")
            for each in ("logs.example.org", "ftp://logs.example.org", "https://", "https://a?b=c")
        ),
    ],
)
def test_a_wrong_value_says_what_to_write(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(**table)

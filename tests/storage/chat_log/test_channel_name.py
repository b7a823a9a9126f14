"""The names of channels as people write them."""

from __future__ import annotations

import pytest

from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import PUBLIC, Place
from storage.log import Query


@pytest.mark.parametrize(
    ("text", "network", "channel"),
    [
        ("#pond", None, "#pond"),
        ("irc/#pond", "irc", "#pond"),
        ("irc/ada", "irc", "ada"),
        ("ada", None, "ada"),
        ("#a/b", None, "#a/b"),
        ("irc/#a/b", "irc", "#a/b"),
        ("&local", None, "&local"),
    ],
)
def test_a_network_stands_before_the_first_slash(
    text: str, network: str | None, channel: str
) -> None:
    name = ChannelName.parse(text)
    assert name == ChannelName(network, channel)
    assert str(name) == text


def test_a_query_is_narrowed_to_a_channel_of_one_network_or_of_any() -> None:
    query = Query(scope=PUBLIC, nick="ada")
    narrowed = query.in_channel(ChannelName("irc", "#pond"))
    assert narrowed == Query(scope=PUBLIC, nick="ada", network="irc", channel="#pond")
    assert query.in_channel(ChannelName(None, "#pond")).network is None
    for nothing in (None, ""):  # names every channel
        assert query.in_channel(ChannelName.parse(nothing)) == query


@pytest.mark.parametrize(
    "text", ["", "pond", "irc/pond", "#a b", "#a,b", "a b/#c", "#" * 201, "/#a"]
)
def test_what_no_channel_is_called_is_refused_where_one_is_needed(text: str) -> None:
    with pytest.raises(ValueError, match="is not a channel"):
        ChannelName.parse_channel(text)


def test_a_name_without_a_network_is_on_the_one_that_is_meant_and_a_nick_is_no_channel() -> None:
    assert ChannelName.parse_channel("#pond").on("irc") == Place("irc", "#pond")
    assert ChannelName.parse_channel("oftc/#pond").on("irc") == Place("oftc", "#pond")
    assert ChannelName("irc", "#pond").is_channel
    assert not ChannelName("irc", "ada").is_channel

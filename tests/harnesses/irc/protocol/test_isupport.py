"""What servers say about themselves."""

from __future__ import annotations

import pytest

from harnesses.irc.protocol.message import ISupport, is_nick


@pytest.mark.parametrize(
    ("mapping", "name", "folded"),
    [
        ("rfc1459", "Nick[A]\\~", "nick{a}|^"),
        ("strict-rfc1459", "Nick[A]\\~", "nick{a}|~"),
        ("ascii", "Nick[A]\\~É", "nick[a]\\~É"),
        ("rfc8265", "ÉCOLE Straße", "École straße"),
        ("rfc7613", "Nick[A]", "nick[a]"),
        ("unheard-of", "Nick[A]\\~É", "nick{a}|^É"),
    ],
)
def test_names_fold_as_the_server_says(mapping: str, name: str, folded: str) -> None:
    assert ISupport().with_tokens([f"CASEMAPPING={mapping}"]).fold(name) == folded


def test_tokens_of_several_lines_add_up_and_silence_means_the_protocol_defaults() -> None:
    silent = ISupport()
    assert silent.fold("[]") == "{}"
    assert silent.prefix == {"@": "o", "+": "v"}
    assert (silent.nicklen, silent.linelen, silent.chantypes) == (None, 512, "#&")
    first = silent.with_tokens(["NICKLEN=30", "PREFIX=(qo)~@"])
    isupport = first.with_tokens(["-NICKLEN", "LINELEN=x"])
    assert (isupport.nicklen, isupport.linelen) == (None, 512)
    assert isupport.prefix == {"~": "q", "@": "o"}
    assert silent.with_tokens([r"CHANTYPES=\x23"]).chantypes == "#"
    assert silent.with_tokens(["CHANMODES=b,k,l,imn"]).chanmodes == ("b", "k", "l", "imn")
    assert silent.with_tokens(["CHANMODES=b"]).chanmodes == ("b", "", "", "")


def test_symbols_come_off_the_names_of_members_and_off_channels_as_targets() -> None:
    isupport = ISupport().with_tokens(["PREFIX=(qaohv)~&@%+", "STATUSMSG=@+", "CHANTYPES=#+"])
    assert isupport.without_prefix("~&@owner") == "owner"
    assert isupport.without_prefix("_~nick") == "_~nick"
    assert ISupport().with_tokens(["PREFIX="]).without_prefix("@odd") == "@odd"
    targets = ("@#c", "+open", "alice", "")
    assert [isupport.channel_of(each) for each in targets] == ["#c", "+open", None, None]


def test_some_names_are_nicks_of_people_and_others_are_nobodys() -> None:
    nicks = ["alice", "a[x]", "Zoë", "_", "`away`", "0AAAAAAAD", "{}|^\\"]
    others = "", "*status", "irc.example", "#c", "a,b", "a b", ":x", "a!b@c", "@ada", "$x", "a?\r"
    assert list(filter(is_nick, [*nicks, *others])) == nicks


def test_absurd_numbers_are_not_believed() -> None:
    digits = "9" * 5000
    words = [f"{name}={digits}" for name in ("LINELEN", "NICKLEN", "USERLEN", "HOSTLEN")]
    isupport = ISupport().with_tokens([*words, f"TARGMAX=JOIN:{digits}", "MAXTARGETS=" + digits])
    lengths = (isupport.linelen, isupport.nicklen, isupport.userlen, isupport.hostlen)
    assert lengths == (512, 9, 11, 63)
    assert isupport.targets("PRIVMSG") == 1
    huge = ISupport().with_tokens(["LINELEN=999999999", "HOSTLEN=99999999", "NICKLEN=0"])
    assert (huge.linelen, huge.hostlen, huge.nicklen) == (16384, 128, 1)

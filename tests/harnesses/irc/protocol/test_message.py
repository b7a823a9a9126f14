"""The wire format, and what servers say about themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from harnesses.irc.protocol.errors import InvalidMessage
from harnesses.irc.protocol.message import (
    ISupport,
    LineBuffer,
    Message,
    Source,
    decode,
    is_nick,
    parse,
    strip_tags,
)

TEXT = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]))
WORD = st.text(
    st.characters(exclude_characters="\r\n\0 ", exclude_categories=["Cs"]), min_size=1
).filter(lambda word: not word.startswith(":"))


def test_a_line_with_everything_is_read() -> None:
    message = parse(
        r"@time=2026-01-01T00:00:00Z;+x=a\:b\s\\c;y :al!a@h.example PRIVMSG  #c  :hi  :)"
    )
    assert message == Message(
        "PRIVMSG",
        ("#c", "hi  :)"),
        Source("al", "a", "h.example"),
        {"time": "2026-01-01T00:00:00Z", "+x": "a;b \\c", "y": ""},
    )


@pytest.mark.parametrize(
    ("value", "meant"), [(r"\q", "q"), ("x\\", "x"), (r"\\s", r"\s"), (r"\r\n", "\r\n"), ("", "")]
)
def test_tag_escapes_are_those_of_the_specification(value: str, meant: str) -> None:
    message = parse(f"@k={value} PING")
    assert message is not None
    assert message.tags == {"k": meant}


@pytest.mark.parametrize("line", ["", " ", ":", ":server", "@tag", "@tag :server", "@", ": "])
def test_a_line_without_a_command_is_no_message(line: str) -> None:
    assert parse(line) is None


@given(st.text())
def test_no_text_makes_the_parser_fail(line: str) -> None:
    message = parse(line)
    assert message is None or message.command


@given(WORD.map(str.upper), st.lists(WORD), TEXT, st.dictionaries(st.sampled_from("abc"), TEXT))
def test_what_is_rendered_reads_the_same(
    command: str, middle: list[str], last: str, tags: dict[str, str]
) -> None:
    if command.startswith("@"):
        command = "X" + command
    message = Message(command.upper(), (*middle, last), Source("n", "u", "h"), tags)
    assert parse(message.render()) == message


@pytest.mark.parametrize(
    "message",
    [
        Message("PRIVMSG", ("#c", "a\r\nQUIT")),
        Message("PRIVMSG", ("#c", "a\nQUIT")),
        Message("PRIVMSG", ("#c", "a\0b")),
        Message("PRIVMSG", ("#c d", "a")),
        Message("PRIVMSG", ("", "a")),
        Message("PRIVMSG", (":c", "a")),
    ],
)
def test_a_message_that_would_be_read_as_another_is_refused(message: Message) -> None:
    with pytest.raises(InvalidMessage):
        message.render()


def test_tags_come_off_and_a_missing_parameter_is_empty() -> None:
    bare = ":a!b@c PRIVMSG #c :two  spaces"
    assert strip_tags(f"@time=x;y=z {bare}") == bare
    assert strip_tags("PING :@x y") == "PING :@x y"
    assert Message("PART", ("#c",)).param(1) == Message("PART", ("#c",)).param(-2) == ""


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("héllo".encode(), "héllo"),
        (b"h\xe9llo", "héllo"),
        (b"\x93quoted\x94", "“quoted”"),
        (b"\x81\xe9", "\x81é"),
        ("cut in a character: é".encode()[:-1], "cut in a character: Ã"),
        ("élan café".encode()[:-1], "élan cafÃ"),
    ],
)
def test_bytes_become_the_likeliest_text(raw: bytes, text: str) -> None:
    assert decode(raw) == text


@given(st.binary(min_size=1) | st.text(min_size=1).map(lambda t: t.encode("cp1252", "ignore")))
def test_no_byte_is_lost_or_changed(raw: bytes) -> None:
    text = decode(raw)
    cuts = [(text[:at], text[at:]) for at in range(max(0, len(text) - 3), len(text) + 1)]
    assert raw in [
        head.encode(first, "replace") + tail.encode(second, "replace")
        for head, tail in [("", text), *cuts]
        for first in ("utf-8", "cp1252", "latin-1")
        for second in ("cp1252", "latin-1")
    ]


@given(st.lists(st.binary().map(lambda b: b.replace(b"\n", b"").replace(b"\r", b""))), st.data())
def test_lines_are_the_same_however_the_bytes_are_cut(
    lines: list[bytes], data: st.DataObject
) -> None:
    ends = data.draw(st.lists(st.sampled_from([b"\r\n", b"\n"]), min_size=len(lines)))
    stream = b"".join(line + end for line, end in zip(lines, ends, strict=False))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    buffer = LineBuffer()
    parts = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    got = [line for part in parts for line in buffer.feed(part)]
    assert got == [decode(line) for line in lines if line]


def test_a_line_without_end_does_not_grow_for_ever() -> None:
    buffer = LineBuffer()
    for _ in range(100):
        assert buffer.feed(b"x" * 10_000) == []
    with capture_logs() as logs:
        lines = buffer.feed(b"\nnext\r\n")
    assert [len(line) for line in lines] == [64 * 1024, 4]
    assert logs[0]["event"] == "irc.line_cut"
    assert logs[0]["dropped"] == 1_000_000 - 64 * 1024


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

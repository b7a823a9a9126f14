"""The log formats: what each program writes for each kind of event, and that nothing breaks us."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path, PurePath
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harnesses.logs.formats import FORMATS, DayChange, Ignored, Parsed, ParsedLine, detect
from harnesses.logs.reading import ImportOptions, ParsedEvent, PathInfo, parse_path, read_log
from tests.kit.log_samples import SAMPLES


@pytest.mark.parametrize("name", SAMPLES)
def test_every_kind_of_line_of_a_format_is_read_as_what_it_is(name: str) -> None:
    parse = FORMATS[name].parse
    assert {line: told(parse(line)) for line in SAMPLES[name]} == SAMPLES[name]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_format_is_recognised_by_its_lines(name: str) -> None:
    assert detect(list(SAMPLES[name])) is FORMATS[name]


def test_who_joined_is_kept_with_user_and_host() -> None:
    for name, samples in SAMPLES.items():
        for line, expected in samples.items():
            if expected.startswith("JOIN"):
                parsed = FORMATS[name].parse(line)
                assert isinstance(parsed, ParsedLine)
                assert (parsed.user, parsed.host) == ("~b", "host.example"), line


@given(st.text(max_size=300))
def test_no_text_makes_a_parser_raise(line: str) -> None:
    for format in FORMATS.values():
        format.parse(line)


@given(st.sampled_from([line for samples in SAMPLES.values() for line in samples]), st.data())
def test_no_damaged_line_makes_a_parser_raise(line: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(line)))
    end = data.draw(st.integers(start, len(line)))
    middle = data.draw(st.text(max_size=20))
    for format in FORMATS.values():
        format.parse(line[:start] + middle + line[end:])


def told(parsed: Parsed) -> str:
    """What a line is, as the samples say it."""
    if isinstance(parsed, DayChange | Ignored):
        return ""
    assert isinstance(parsed, ParsedLine)
    target = f">{parsed.target}" if parsed.target else ""
    text = f": {parsed.text}" if parsed.text else ""
    return f"{parsed.type} {parsed.nick}{target}{text}"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("irclogs/libera/#python.log", PathInfo("libera", "#python")),
        ("irclogs/2024/libera/#python.02-01.log", PathInfo("libera", "#python")),
        ("logs/irc.libera.##c.weechatlog", PathInfo("libera", "##c")),
        ("log/libera/#c/2024-01-02.log", PathInfo("libera", "#c", date(2024, 1, 2))),
        ("networks/oftc/moddata/log/#c/2024-01-02.log", PathInfo("oftc", "#c", date(2024, 1, 2))),
        ("log/default_oftc_#c_20240102.log", PathInfo(None, "#c", date(2024, 1, 2))),
        ("ChannelLogger/oftc/#c/#c.2024-01-02.log", PathInfo("oftc", "#c", date(2024, 1, 2))),
        ("eggdrop/#c.log.02Jan2024", PathInfo(None, "#c", date(2024, 1, 2))),
        ("backup/#c.log.gz", PathInfo(None, "#c")),
        ("notes-2024-13-45.txt", PathInfo()),
    ],
)
def test_a_path_tells_network_channel_and_day(path: str, expected: PathInfo) -> None:
    assert parse_path(PurePath("/home/ada", path)) == expected


@given(st.text(min_size=1, max_size=60))
def test_no_path_makes_naming_raise(path: str) -> None:
    parse_path(PurePath(path))


def parsed(path: Path, log: str, zone: str = "UTC") -> list[ParsedEvent]:
    """The lines of a log of this text at a path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(log.encode("utf-8", "surrogateescape"))
    return list(read_log(path, ImportOptions(zone=ZoneInfo(zone))))


def test_the_day_comes_from_the_lines_that_change_it(tmp_path: Path) -> None:
    text = "".join(f"{line}\n" for line in SAMPLES["irssi"])
    read = parsed(tmp_path / "irclogs" / "libera" / "#frogs.log", text)
    found = [each.event for each in read if each.event]
    assert {event.time.date() for event in found[:-1]} == {date(2024, 1, 1)}
    assert found[-1].time == datetime(2024, 1, 2, 0, 1, 30, tzinfo=UTC)
    assert {(event.network, event.channel) for event in found} == {("libera", "#frogs")}


@pytest.mark.parametrize(
    ("path", "log", "expected"),
    [
        (  # the day comes from the name, and turns when the clock goes back
            "log/libera/#frogs/2024-02-29.log",
            "[23:59:58] <ada> late\n[00:00:01] <ada> early\n",
            "24-02-29 22:59:58 late, 24-02-29 23:00:01 early",
        ),
        (  # no line has a year
            "logs/Libera/#frogs.log",
            "**** BEGIN LOGGING AT Sun Dec 31 23:00:00 2023\n\n"
            "Dec 31 23:59:00 <ada>\told\nJan 01 12:00:00 <ada>\tnew\n",
            "23-12-31 22:59:00 old, 24-01-01 11:00:00 new",
        ),
        (  # the hour that comes twice in autumn
            "log/net/#c/2024-10-27.log",
            "[02:10:00] <a> 1\n[02:50:00] <a> 2\n[02:10:00] <a> 3\n[03:10:00] <a> 4\n",
            "24-10-27 00:10:00 1, 24-10-27 00:50:00 2, 24-10-27 01:10:00 3, 24-10-27 02:10:00 4",
        ),
        (  # a line says that it is of UTC
            "irc.libera.#c.weechatlog",
            "2024-07-01 12:00:00\ta\tlocal\n2024-07-01T12:00:00.5Z\ta\tutc\n",
            "24-07-01 10:00:00 local, 24-07-01 12:00:00 utc",
        ),
        (  # bytes are no UTF-8
            "log/libera/#c/2024-01-01.log",
            "[12:00:00] <a> \u2603\n[12:00:01] <a> caf\udce9 \udc80\r\n",
            "24-01-01 11:00:00 \u2603, 24-01-01 11:00:01 caf\u00e9 \u20ac",
        ),
        (  # lines are not understood
            "log/n/#c/2024-01-01.log",
            "[12:00:00] <a> one\nnonsense\n[25:61:00] <a> when?\n[12:00:02] <a> two\n",
            "24-01-01 11:00:00 one, nonsense, [25:61:00] <a> when?, 24-01-01 11:00:02 two",
        ),
    ],
)
def test_a_log_of_vienna_has_its_times_and_texts_in_order(
    tmp_path: Path, path: str, log: str, expected: str
) -> None:
    lines = [
        f"{each.event.time:%y-%m-%d %H:%M:%S} {each.event.text}" if each.event else each.line
        for each in parsed(tmp_path / path, log, "Europe/Vienna")
    ]
    assert ", ".join(lines) == expected


@given(st.lists(st.binary(max_size=80), max_size=30))
def test_fuzzed_bytes_never_raise(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / "#fuzzed.2024-01-01.log"
    path.write_bytes(b"\n".join([b"[00:00] <a> a log all the same", *lines]))
    for name in FORMATS:
        every = ImportOptions(zone=UTC, network="n", channel="#c", format=name)
        list(read_log(path, every))

"""The tables of the cron tendril: what is accepted, and what is said about the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from harnesses.cron.jobs import place_of
from harnesses.cron.settings import CronSettings, parse_target
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import Place
from terrarium.config import Config, ConfigError, load

JOB = {"schedule": "0 9 * * *", "prompt": "Say hello.", "deliver": "#terrarium"}


def config(**tables: object) -> Config:
    return Config(tables, Path("terrarium.toml"), Path("data"))


def section(**changes: object) -> CronSettings:
    return config(cron={"jobs": {"hello": JOB | changes}}).section(CronSettings)


def test_a_job_needs_only_a_schedule_a_prompt_and_a_place_and_there_is_none_by_default() -> None:
    job = section().jobs["hello"]
    assert (job.timezone, job.log, job.hours) == ("UTC", None, 24)
    assert config().section(CronSettings).jobs == {}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("schedule", "soon", "five fields"),
        ("timezone", "Mars/Olympus", "not a time zone"),
        ("deliver", "terrarium", "not a place to deliver to"),
        ("deliver", "file:", "not a place to deliver to"),
        ("deliver", "https://", "without a host"),
        ("deliver", "#a\r\nQUIT", "not a place to deliver to"),
        ("log", "alice", "not a channel"),
        ("prompt", "", "at least 1 character"),
        ("hours", 0, "greater than or equal to 1"),
    ],
)
def test_a_bad_value_is_named_with_file_job_and_key(key: str, value: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        section(**{key: value})
    assert f"terrarium.toml: [cron] jobs.hello.{key}:" in str(caught.value)


def test_an_unknown_key_and_a_name_that_could_not_be_a_conversation_are_refused() -> None:
    with pytest.raises(ConfigError, match=r'jobs\.hello.*"shedule".*nearest.*"schedule"'):
        section(shedule="0 9 * * *")
    with pytest.raises(ConfigError, match="letters, digits"):
        config(cron={"jobs": {"a/b": JOB}}).section(CronSettings)


def test_a_whole_file_is_checked_when_it_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "terrarium.toml"
    file.write_text('[cron.jobs.x]\nschedule = "99 * * * *"\nprompt = "p"\ndeliver = "#c"\n')
    with pytest.raises(ConfigError, match=r"jobs\.x\.schedule"):
        load(file, tmp_path)


def test_the_environment_may_give_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"x": {"schedule": "0 9 * * *", "prompt": "p", "deliver": "#c"}}'
    monkeypatch.setenv("CRON_JOBS", text)
    assert config().section(CronSettings).jobs["x"].deliver == "#c"


def test_places_to_deliver_to() -> None:
    assert parse_target("#c") == ChannelName(None, "#c")
    assert parse_target("libera/##c") == ChannelName("libera", "##c")
    assert parse_target("file:out/digest.txt") == Path("out/digest.txt")
    assert parse_target("https://example.org/hook?k=1") == "https://example.org/hook?k=1"


def test_a_channel_alone_is_on_the_one_network_that_there_is() -> None:
    channel = ChannelName(None, "#c")
    assert place_of(config(), channel, "x") == Place("irc", "#c")
    assert place_of(config(irc={"networks": {"libera": {}}}), channel, "x") == Place("libera", "#c")
    two = config(irc={"networks": {"libera": {}, "oftc": {}}})
    with pytest.raises(ConfigError, match=r'jobs\.x\.log.*libera, oftc.*"libera/#c"'):
        place_of(two, channel, "jobs.x.log")
    assert place_of(two, ChannelName("oftc", "#c"), "jobs.x.log") == Place("oftc", "#c")

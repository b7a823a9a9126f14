"""Scheduled jobs, as read from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

from harnesses.core.addresses import irc_networks
from harnesses.core.services.outbox import TendrilOutbox
from harnesses.cron.delivery import ChannelDelivery, Delivery, FileDelivery, WebhookDelivery
from harnesses.cron.settings import CronSettings, parse_target
from llm.client.settings import AgentSettings
from llm.log_questions import Quoting
from llm.prompt.log_window import LogWindow
from llm.scheduling.cron_schedule import Timetable
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import SPOKEN, Place, Scope
from storage.chat_log.event_table import id_at
from storage.log import ChatLog, Query
from terrarium.config import Config, ConfigError

MAX_LINES = 5_000
"""The most lines of a log that a job shows, as far as they fit into the model's window."""


@dataclass(frozen=True, slots=True)
class LogExcerpt:
    """The last `hours` of a place: the newest lines that people said, with the events between them,
    and with times in a `zone`."""

    log: ChatLog
    place: Place
    hours: int
    zone: tzinfo = UTC

    async def view(self, now: datetime) -> LogWindow | None:
        """Return the log window that ends at `now`, None if nobody said anything in it."""
        said = await self.log.find(
            Query(
                scope=Scope.from_places(self.place),
                types=SPOKEN,
                own=False,
                since=now - timedelta(hours=self.hours),
                until=now,
                limit=MAX_LINES,
            )
        )
        if not said:
            return None
        return LogWindow(
            log=self.log,
            place=self.place,
            # Our answer to their last line came after it.
            anchor=max(said[-1].id + 1, id_at(now)),
            last=MAX_LINES,
            since=said[0].time,
            quoting=Quoting(self.zone),
        )


@dataclass(frozen=True, slots=True)
class CronJob:
    """A scheduled job: its timetable, its prompt, the log excerpt that the model is shown, the
    delivery of its text, and the places to which the model may send messages, by name."""

    name: str
    timetable: Timetable
    prompt: str
    source: LogExcerpt | None
    delivery: Delivery
    send_to: Mapping[str, Place]
    review: bool = False


def read_jobs(config: Config, log: ChatLog, outbox: TendrilOutbox) -> dict[str, CronJob]:
    """Return the jobs of a configuration by name; they read `log`, and deliver to channels through
    `outbox`. Raises ConfigError."""
    zone = config.section(AgentSettings).zone
    jobs = {}
    for name, settings in config.section(CronSettings).jobs.items():
        source = None
        if settings.log is not None:
            channel = ChannelName.parse_channel(settings.log)
            place = place_of(config, channel, f"jobs.{name}.log")
            source = LogExcerpt(log, place, settings.hours, zone)
        target = parse_target(settings.deliver)
        delivery: Delivery
        if isinstance(target, ChannelName):
            place = place_to_speak(config, target, f"jobs.{name}.deliver")
            delivery = ChannelDelivery(outbox, place)
        elif isinstance(target, Path):
            delivery = FileDelivery(config.data / target)
        else:
            delivery = WebhookDelivery(target)
        timetable = Timetable.parse(settings.schedule, settings.timezone)
        send_to = {
            each: place_to_speak(config, ChannelName.parse_channel(each), f"jobs.{name}.send_to")
            for each in settings.send_to
        }
        jobs[name] = CronJob(
            name, timetable, settings.prompt, source, delivery, send_to, settings.review
        )
    return jobs


def place_to_speak(config: Config, channel: ChannelName, where: str) -> Place:
    """Return the place of a channel on a network that is configured, as `place_of` does. Raises
    ConfigError."""
    place = place_of(config, channel, where)
    if place.network not in (known := irc_networks(config)):
        raise ConfigError(
            f'{config.name}: [cron] {where}: no network is called "{place.network}"; '
            f"there are: {', '.join(known)}"
        )
    return place


def place_of(config: Config, name: ChannelName, where: str) -> Place:
    """Return a channel's place in the log; its network may be omitted if there is only one. Raises
    ConfigError if the network is ambiguous; `where` is the setting that its message names."""
    known = irc_networks(config)
    if name.network is None and len(known) > 1:
        raise ConfigError(
            f'{config.name}: [cron] {where}: "{name}" could be on any of '
            f'{", ".join(known)}; write "{known[0]}/{name}"'
        )
    return name.on(known[0])

"""Scheduled jobs, as read from the configuration, and the delivery of their text: to a channel, a
file, or a webhook."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import httpx2
import stamina

from harnesses.core.addresses import irc_networks
from harnesses.core.services.peers import TendrilOutbox
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

_RETRY_TIMEOUT = 120.0  # seconds within which a failed request is retried
_REQUEST_TIMEOUT = 20.0  # seconds for one attempt


class Undeliverable(Exception):
    """The text of a run could not be delivered; the message is for the log."""


@dataclass(frozen=True, slots=True)
class JobOutput:
    """The text of one run of a job, with the time at which the run was due, and the ids of the log
    lines that the text repeats."""

    job: str
    time: datetime
    text: str
    quotes: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        """The name of the output, equal for repeated deliveries of the same output."""
        return f"{self.job}/{self.time.isoformat()}"


@dataclass(frozen=True, slots=True)
class ChannelDelivery:
    """Delivery to a channel through the outbox, from which the IRC tendril takes the text."""

    outbox: TendrilOutbox
    place: Place

    async def deliver(self, result: JobOutput) -> None:
        """Put the output into the outbox, whose key makes a repeated delivery a no-op."""
        place = str(self.place)
        await self.outbox.say("irc", place, result.text, key=result.name, quotes=result.quotes)


@dataclass(frozen=True, slots=True)
class FileDelivery:
    """Delivery to the end of a text file, with a heading of job and time."""

    path: Path

    async def deliver(self, result: JobOutput) -> None:
        """Append the output. Raises Undeliverable."""

        def append() -> None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"# {result.job}, {result.time.isoformat()}\n\n{result.text}\n\n")

        try:
            await asyncio.to_thread(append)
        except OSError as error:
            raise Undeliverable(f"{self.path}: {error}") from error


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """Delivery of job, time and text by a POST of JSON, retried with backoff while the server is
    away or busy. All attempts have the same `Idempotency-Key` header."""

    url: str
    patience: float = _RETRY_TIMEOUT

    async def deliver(self, result: JobOutput) -> None:
        """Send the output. Raises Undeliverable, without the URL, which may have a secret in it."""
        body = {"job": result.job, "time": result.time.isoformat(), "text": result.text}
        headers = {"Idempotency-Key": f"cron/{result.name}"}
        attempts = stamina.retry_context(
            on=_may_pass, attempts=None, timeout=self.patience, wait_initial=0.5, wait_max=30.0
        )
        try:
            async with httpx2.AsyncClient(timeout=_REQUEST_TIMEOUT) as http:
                async for attempt in attempts:
                    with attempt:
                        response = await http.post(self.url, json=body, headers=headers)
                        response.raise_for_status()
        except httpx2.HTTPStatusError as error:
            raise Undeliverable(f"the webhook answered {error.response.status_code}") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            reason = type(error).__name__
            raise Undeliverable(f"the webhook could not be reached: {reason}") from error


Delivery = ChannelDelivery | FileDelivery | WebhookDelivery
"""A way to deliver an output, once. Raises Undeliverable."""


def _may_pass(error: Exception) -> bool:
    """Return True for an error that a retry may cure."""
    # Any other 4xx is the receiver's final answer: the same request would be refused again.
    if isinstance(error, httpx2.HTTPStatusError):
        return error.response.status_code in (408, 425, 429) or error.response.is_server_error
    return isinstance(error, httpx2.TransportError)


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

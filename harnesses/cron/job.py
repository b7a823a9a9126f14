"""Scheduled jobs, as read from the configuration."""

from __future__ import annotations

from dataclasses import dataclass

from harnesses.core.services.outbox import TendrilOutbox
from harnesses.cron.delivery import ChannelDelivery, Delivery, FileDelivery, WebhookDelivery
from harnesses.cron.digest import LogExcerpt
from harnesses.cron.settings import CronSettings
from harnesses.cron.target import FileTarget, WebhookTarget, networks, parse_channel, parse_target
from llm.client.settings import AgentSettings
from llm.scheduling.cron_schedule import Timetable
from storage.log import ChatLog
from terrarium.config import Config, ConfigError


@dataclass(frozen=True, slots=True)
class CronJob:
    """A scheduled job: its timetable, its prompt, the log excerpt that the model is shown, and the
    delivery of its text."""

    name: str
    timetable: Timetable
    prompt: str
    source: LogExcerpt | None
    delivery: Delivery
    review: bool = False


def read_jobs(config: Config, log: ChatLog, outbox: TendrilOutbox) -> dict[str, CronJob]:
    """Return the jobs of a configuration by name; they read `log`, and deliver to channels through
    `outbox`. Raises ConfigError."""
    zone = config.section(AgentSettings).zone
    return {
        name: CronJob(
            name,
            Timetable.parse(settings.schedule, settings.timezone),
            settings.prompt,
            None
            if settings.log is None
            else LogExcerpt(
                log,
                parse_channel(settings.log).place(config, f"jobs.{name}.log"),
                settings.hours,
                settings.lines,
                zone,
            ),
            _delivery(config, name, settings.deliver, outbox),
            settings.review,
        )
        for name, settings in config.section(CronSettings).jobs.items()
    }


def _delivery(config: Config, name: str, deliver: str, outbox: TendrilOutbox) -> Delivery:
    """Return the delivery to the target that `deliver` names. Raises ConfigError."""
    target = parse_target(deliver)
    if isinstance(target, WebhookTarget):
        return WebhookDelivery(target.url)
    if isinstance(target, FileTarget):
        return FileDelivery(config.data / target.path)
    where = f"jobs.{name}.deliver"
    place = target.place(config, where)
    if place.network not in networks(config):
        raise ConfigError(
            f'{config.name}: [cron] {where}: no network is called "{place.network}"; '
            f"there are: {', '.join(networks(config))}"
        )
    return ChannelDelivery(outbox, place)

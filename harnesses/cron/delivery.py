"""Delivery of a job's text: to a channel, a file, or a webhook."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx2
import stamina

from harnesses.core.services.outbox import TendrilOutbox
from storage.chat_log.event import Place

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

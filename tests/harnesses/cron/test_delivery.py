"""Delivery to the outbox, to files and to a web address, over real HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harnesses.core.services.peers import TendrilOutbox
from harnesses.cron.jobs import (
    ChannelDelivery,
    FileDelivery,
    JobOutput,
    Undeliverable,
    WebhookDelivery,
)
from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.outbox import Outbox
from tests.kit.ports import free_port
from tests.kit.serving import serving

DUE = datetime(2026, 5, 1, 9, tzinfo=UTC)


def result(text: str) -> JobOutput:
    return JobOutput("digest", DUE, text)


async def test_a_channel_gets_the_text_through_the_outbox_once(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "outbox.db") as database:
        outbox = Outbox(database)
        delivery = ChannelDelivery(TendrilOutbox(database, "cron"), Place("irc", "#c"))
        await delivery.deliver(result("first"))
        await delivery.deliver(result("written anew after a crash"))
        (message,) = await outbox.list_unsent()
    assert (message.place, message.text) == (Place("irc", "#c"), "first")


async def test_a_file_grows_and_says_which_job_wrote_when_and_one_that_cannot_is_named(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new folder" / "digest.txt"
    await FileDelivery(path).deliver(result("héllo"))
    await FileDelivery(path).deliver(result("again"))
    head = "# digest, 2026-05-01T09:00:00+00:00\n\n"
    assert path.read_text(encoding="utf-8") == f"{head}héllo\n\n{head}again\n\n"
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(Undeliverable, match="taken"):
        await FileDelivery(tmp_path / "taken" / "digest.txt").deliver(result("x"))


class Hook:
    """A web address that answers with the given statuses in turn, and keeps what it was sent."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = list(statuses)
        self.bodies: list[Any] = []
        self.keys: list[str | None] = []

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/hook", self._take, methods=["POST"])])

    async def _take(self, request: Request) -> Response:
        self.bodies.append(await request.json())
        self.keys.append(request.headers.get("idempotency-key"))
        return Response(status_code=self._statuses.pop(0))


async def test_a_webhook_gets_json_and_is_tried_again_with_the_same_key() -> None:
    hook = Hook(503, 429, 204)
    async with serving(hook.app()) as url:
        await WebhookDelivery(f"{url}/hook").deliver(result("héllo"))
    body = {"job": "digest", "time": "2026-05-01T09:00:00+00:00", "text": "héllo"}
    assert hook.bodies == [body] * 3
    assert hook.keys == ["cron/digest/2026-05-01T09:00:00+00:00"] * 3


async def test_a_refusal_is_not_tried_again_and_the_address_stays_secret() -> None:
    hook = Hook(403)
    async with serving(hook.app()) as url:
        with pytest.raises(Undeliverable, match="answered 403") as caught:
            await WebhookDelivery(f"{url}/hook?key=secret").deliver(result("héllo"))
    assert len(hook.bodies) == 1
    assert "secret" not in str(caught.value)


async def test_an_address_where_nobody_listens_is_given_up_in_the_end() -> None:
    nobody = f"http://127.0.0.1:{free_port()}/"
    with pytest.raises(Undeliverable, match="could not be reached"):
        await WebhookDelivery(nobody, patience=0.5).deliver(result("héllo"))

"""Delivery without a network: the outbox and files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from harnesses.core.services.outbox import TendrilOutbox
from harnesses.cron.delivery import ChannelDelivery, FileDelivery, JobOutput, Undeliverable
from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.outbox import Outbox

DUE = datetime(2026, 5, 1, 9, tzinfo=UTC)


def result(text: str) -> JobOutput:
    return JobOutput("digest", DUE, text)


async def test_a_channel_gets_the_text_through_the_outbox_once(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "outbox.db") as database:
        outbox = Outbox(database)
        delivery = ChannelDelivery(TendrilOutbox(database, "cron", {"irc"}), Place("irc", "#c"))
        await delivery.deliver(result("first"))
        await delivery.deliver(result("written anew after a crash"))
        (message,) = await outbox.list_unsent()
    assert (message.place, message.text) == (Place("irc", "#c"), "first")


async def test_a_file_grows_and_says_which_job_wrote_when(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "digest.txt"
    await FileDelivery(path).deliver(result("héllo"))
    await FileDelivery(path).deliver(result("again"))
    head = "# digest, 2026-05-01T09:00:00+00:00\n\n"
    assert path.read_text(encoding="utf-8") == f"{head}héllo\n\n{head}again\n\n"


async def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(Undeliverable, match="taken"):
        await FileDelivery(tmp_path / "taken" / "digest.txt").deliver(result("x"))

"""The page of jobs: what is waiting, of whom, and what can be done to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.jobs import CronRuns, Jobs
from storage.queues.reminders import Owner, Reminder, Reminders
from tests.kit.browser import visit
from tests.kit.web_site import WebSite, bearer, web_site

pytestmark = pytest.mark.asyncio(loop_scope="module")

LATER = datetime.now(UTC) + timedelta(days=3)
SETTINGS = {
    "token": "all-of-it",
    "accounts": {"ada": {"token": "adas-own", "identities": ["irc/ada"]}},
}
ADA, BOB = Owner("irc", "ada", account="Ada"), Owner("irc", "bob", "b", "host")
POND, BOBS_ROOM = Place("irc", "#pond"), Place("irc", "bob!b@host")


async def fill(data: Path) -> None:
    """Store reminders of two people, a cron job, and a job that has failed."""
    async with Database.open(data / "irc.db") as database:
        kept = Reminders(database)
        for owner, place, text in (
            (ADA, Place("irc", "~ada"), "feed the newts"),
            (ADA, POND, "change the water"),
            (BOB, POND, "count the frogs"),
            (BOB, BOBS_ROOM, "buy a ring for ada"),
        ):
            private = place != POND
            assert await kept.add(Reminder(owner, place, private, text, LATER))
        await Jobs(database, max_attempts=1).add("memory.tend", {"room": "irc/bob!b@host"})
        claimed = await Jobs(database).claim("w", ["memory.tend"], datetime.now(UTC))
        assert claimed
        await Jobs(database).fail(claimed, "Unreadable")
    async with Database.open(data / "cron.db") as database:
        await CronRuns(database).record_run("digest", LATER)
        await CronRuns(database).record_next("digest", LATER)


async def reminders(data: Path) -> dict[str, Reminder]:
    async with Database.open(data / "irc.db") as database:
        return {each.text: each for each in await Reminders(database).all()}


async def log_in(page: Page, site: WebSite, token: str) -> None:
    await page.goto(f"{site.url}/login?next=/jobs")
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Log in").click()


async def press(page: Page, name: str) -> None:
    await page.get_by_role("button", name=name).click()
    await expect(page.get_by_role("status")).to_be_visible()


async def test_people_pause_run_and_cancel_their_own_and_see_nobody_elses(
    chromium: Browser, tmp_path: Path
) -> None:
    await fill(tmp_path)
    async with web_site(tmp_path, settings=SETTINGS) as site:
        page = await visit(chromium, f"{site.url}/jobs")
        await expect(page.get_by_label("Token")).to_be_visible()  # nobody else sees anything
        await log_in(page, site, "adas-own")
        await expect(page.get_by_role("main")).to_contain_text("feed the newts")
        for others in ("count the frogs", "buy a ring", "digest", "memory.tend"):
            await expect(page.get_by_role("main")).not_to_contain_text(others)
        await press(page, "Pause: feed the newts")
        assert (await reminders(tmp_path))["feed the newts"].is_paused
        await press(page, "Resume: feed the newts")
        await press(page, "Cancel: change the water")
        before = datetime.now(UTC)
        await press(page, "Run now: feed the newts")
        found = await reminders(tmp_path)
        assert "change the water" not in found
        assert before <= found["feed the newts"].due < LATER
        # The rights are checked when something is done, too, and no other site can do it.
        foreign = {"store": "irc", "name": "reminder-3", "action": "cancel"}
        headers = bearer("adas-own")
        answer = await site.http.post("/jobs", data=foreign, headers=headers)
        assert answer.status_code == 404
        own = foreign | {"name": f"reminder-{found['feed the newts'].id}"}
        headers |= {"origin": "https://elsewhere.example"}
        assert (await site.http.post("/jobs", data=own, headers=headers)).status_code == 403
        assert (await reminders(tmp_path)).keys() == found.keys()


async def test_an_operator_sees_channels_and_jobs_and_no_private_reminder(
    chromium: Browser, tmp_path: Path
) -> None:
    await fill(tmp_path)
    async with web_site(tmp_path, settings=SETTINGS) as site:
        page = await visit(chromium, f"{site.url}/login")
        await log_in(page, site, "all-of-it")
        main = page.get_by_role("main")
        for shown in ("change the water", "count the frogs", "digest", "Failed: Unreadable."):
            await expect(main).to_contain_text(shown)
        for private in ("feed the newts", "buy a ring", "host"):
            await expect(main).not_to_contain_text(private)
        await press(page, "Retry: memory.tend")
        await press(page, "Pause: digest")
        await press(page, "Run now: digest")
        await press(page, "Cancel: count the frogs")
        assert "count the frogs" not in await reminders(tmp_path)
    async with Database.open(tmp_path / "cron.db") as database:
        assert await CronRuns(database).is_paused("digest")
        assert [job.kind for job in await Jobs(database).all()] == ["cron.write", "cron.deliver"]

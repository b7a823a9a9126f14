"""Research over 233,000 real lines: are all claims in the lines that they are linked to?

Ten questions are researched with a scripted model that obeys, and besides writes claims that no
source supports (tests/kit/researching.py); five with an extract, for which no model is asked.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks import ubuntu
from benchmarks.figure import Figure, percentile
from benchmarks.log import log_folder, log_of
from harnesses.core.services.reminders import Requester
from harnesses.core.tendril.research import ResearchRequest
from storage.chat_log.event import PUBLIC, Event, Place
from storage.log import Query
from storage.passages.words import content_stems
from storage.queues.reminders import Owner
from storage.queues.reports import Report, Reports
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.researching import INVENTED, UNFOUNDED, obey
from tests.kit.room_tendril import RoomTendril, room_tendril, rooms_config

QUESTIONS = (
    "how do I mount an ntfs partition so that I can write to it?",
    "how can I play encrypted dvds?",
    "how do I install flash on a 64 bit system?",
    "why is there no sound after an upgrade?",
    "how do I get wireless working on a laptop with a broadcom card?",
    "how can I change the boot order in grub?",
    "what do people use to watch tv on their computer?",
    "how do I stop a service from starting at boot?",
    "how do I find out which version of ubuntu I have?",
    "how do I share files with windows machines by samba?",
)
EXTRACTS = 5
_PATIENCE = 120.0  # seconds for one research
_PLACE = Place("libera", "#ubuntu")
_TINY = {"parameters": 135_000_000}


async def figures() -> AsyncIterator[Figure]:
    """Yield how many claims are in their lines, and how long a research takes."""
    try:
        number = len(ubuntu.lines())
    except ubuntu.NoCorpus as error:
        print(f"  skipped: {error}")
        return
    with log_folder() as folder, tempfile.TemporaryDirectory() as name:
        built = await log_of(folder, number)
        shutil.copyfile(built, Path(name) / "irc.db")
        for card, questions in (({}, QUESTIONS), (_TINY, QUESTIONS[:EXTRACTS])):
            async with ScriptedOpenAI() as model:
                model.default, model.card = obey, card
                config = rooms_config(Path(name), model.url)
                async with room_tendril(config) as tendril:
                    async for figure in _researched(tendril, questions, is_extract=bool(card)):
                        yield figure


async def _researched(
    tendril: RoomTendril, questions: tuple[str, ...], *, is_extract: bool
) -> AsyncIterator[Figure]:
    answered = supported = claims = false = 0
    took = []
    for question in questions:
        began = time.perf_counter()
        report = await _report(tendril, question)
        took.append(time.perf_counter() - began)
        query = Query(scope=PUBLIC, ids=report.content.lines, limit=1_000)
        lines = {event.id: event for event in await tendril.log.chat_log.find(query)}
        stems = content_stems(question)
        for claim in (*report.content.claims, *report.content.answer):
            said = [lines[each] for each in claim.lines if each in lines]
            claims += 1
            supported += any(_says(event, claim.text, stems) for event in said)
            false += claim.text in (INVENTED, UNFOUNDED)
        answered += bool(report.content.claims)
    kind, what = ("extract", "threads") if is_extract else ("report", "claims")
    yield Figure(f"{kind}: questions answered", answered, "", least=len(questions))
    yield Figure(f"{kind}: {what}", claims, "")
    yield Figure(f"{kind}: {what} that their lines say", supported, "", least=claims)
    yield Figure(f"{kind}: {what} that nothing supports", false, "", goal=0)
    yield Figure(f"{kind}: seconds, median", percentile(took, 0.5), "s")


def _says(event: Event, text: str, stems: frozenset[str]) -> bool:
    """Return whether a line says a claim or, for a thread, has words of the question."""
    return event.text in text if text else bool(stems & content_stems(event.text))


async def _report(tendril: RoomTendril, question: str) -> Report:
    """Research a question, and return the report once it is finished."""
    asked = ResearchRequest(
        question=question,
        requester=Requester(Owner("libera", "ada"), _PLACE, False, str(_PLACE), "ada"),
        payer="ada",
        scope=PUBLIC,
        address="http://127.0.0.1",
        prefix=".",
        nicks=("Terra",),
    )
    token = (await tendril.research.start(asked)).rpartition("/")[2]
    async with asyncio.timeout(_PATIENCE):
        while True:
            report = await Reports(tendril.log.database).get(token)
            assert report, "a report that was just stored"
            if not report.is_open:
                return report
            await asyncio.sleep(0.05)

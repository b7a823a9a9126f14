"""How many of our files a question passes in the tendril, from its line to the stored answer.

The files are those of which a function runs, in any thread. With `-s` the list is printed.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tests.docs.reference import ROOT
from tests.kit.irc_client import irc_client
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril, kept_turns
from tests.kit.ircd import inspircd
from tests.kit.openai_script import ScriptedOpenAI

LIMITS = {
    "harnesses/core": 9,
    "harnesses/irc": 15,
    "llm/agent": 3,
    "llm/client": 3,
    "llm/intents": 2,
    "llm/log_questions": 2,
    "llm/memory": 2,
    "llm/messages": 1,
    "llm/parsing": 3,
    "llm/prompt": 3,
    "llm/skills": 1,
    "llm/threads": 2,
    "llm/tools": 2,
    "storage": 15,
    "terrarium": 5,
}
"""The most files of each package. They may only become fewer; the aim is 60 in all."""

MODEL_SERVER = ROOT / "terrarium/http/limited_protocol.py"
"""The scripted model server runs in this process too; no question passes its side of HTTP here."""


@contextmanager
def traced(files: set[Path]) -> Iterator[None]:
    """Add the files of all functions that are called to `files`."""

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            files.add(Path(frame.f_code.co_filename))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def by_package(files: set[Path]) -> dict[str, list[str]]:
    """Group files of the product by package; those of `llm` by sub-package."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(file for file in files if file.is_relative_to(ROOT)):
        parts = path.relative_to(ROOT).parts
        if parts[0] in ("harnesses", "llm"):
            found["/".join(parts[:2])].append("/".join(parts[2:]))
        elif parts[0] in ("storage", "terrarium"):
            found[parts[0]].append("/".join(parts[1:]))
    return found


async def test_a_question_passes_few_files(tmp_path: Path) -> None:
    ways: list[set[Path]] = []
    async with (
        inspircd() as ircd,
        ScriptedOpenAI() as script,
        irc_tendril(irc_config(tmp_path, ircd.port, script.url)) as tendril,
        irc_client(ircd.port, "alice") as alice,
    ):
        script.card = {"parameters": 8_000_000_000}
        await alice.join(ROOM)
        await alice.say(ROOM, "the toad is in the pond")
        for number in range(3):
            files: set[Path] = set()
            script.say(f"In pond {number}.")
            with traced(files):
                await alice.say(ROOM, ".terrarium where do toads usually live?")
                await alice.expect(f"In pond {number}")
                await kept_turns(tendril, f"irc/{ROOM}/alice")
            ways.append(files)
    # What runs beside at times (a timer, the housekeeping) is not on the way of each question.
    found = by_package(set.intersection(*ways) - {MODEL_SERVER})
    for package, names in found.items():
        print(f"{package}: {len(names)}: {' '.join(names)}")
    print("in all:", sum(map(len, found.values())))
    counts = {package: len(names) for package, names in found.items()}
    assert counts.keys() <= LIMITS.keys()
    assert {each: count for each, count in counts.items() if count > LIMITS[each]} == {}

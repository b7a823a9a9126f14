"""Limit of the number of our files that a question runs through in the tendril.

Counted from its IRC line to the stored answer, in all threads. `pytest -s` prints the list.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tests.docs.tracing import FileTrace
from tests.kit.irc_client import irc_client
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril, kept_turns
from tests.kit.ircd import inspircd
from tests.kit.openai_script import ScriptedOpenAI

MOST_FILES = 61
"""The limit of all packages together, only ever to be lowered; the aim is 55."""

WAYS = 8
"""Number of traced questions; only files that all of them ran through count."""

MODEL_SERVER = "terrarium/http/serving.py"
"""A file that runs only because the scripted model server is in this process; not counted."""


def by_package(files: set[str]) -> dict[str, list[str]]:
    """Group files of the tendril by package; those of `llm` and `harnesses` by sub-package."""
    found: dict[str, list[str]] = defaultdict(list)
    for parts in (path.split("/") for path in sorted(files)):
        depth = 2 if parts[0] in ("harnesses", "llm") else 1
        found["/".join(parts[:depth])].append("/".join(parts[depth:]))
    return found


async def test_a_question_passes_few_files(tmp_path: Path) -> None:
    ways: list[set[str]] = []
    with FileTrace() as trace:
        async with (
            inspircd() as ircd,
            ScriptedOpenAI() as script,
            irc_tendril(irc_config(tmp_path, ircd.port, script.url)) as tendril,
            irc_client(ircd.port, "alice") as alice,
        ):
            script.card = {"parameters": 8_000_000_000}
            script.reads = lambda _: "general"
            await alice.join(ROOM)
            await alice.say(ROOM, "the toad is in the pond")
            for number in range(WAYS):
                script.say(f"In pond {number}.")
                with trace.noting() as files:
                    await alice.say(ROOM, ".terrarium where do toads usually live?")
                    await alice.expect(f"In pond {number}")
                    await kept_turns(tendril, f"irc/{ROOM}/alice")
                ways.append(files)
    # The intersection excludes code that runs occasionally, such as timers and housekeeping.
    found = by_package(set.intersection(*ways) - {MODEL_SERVER})
    for package, names in found.items():
        print(f"{package}: {len(names)}: {' '.join(names)}")
    print("in all:", sum(map(len, found.values())))
    assert sum(map(len, found.values())) <= MOST_FILES

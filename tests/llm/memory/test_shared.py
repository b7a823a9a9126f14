"""Facts that rooms and tendrils share, in prompts of a real IRC tendril beside another store."""

from __future__ import annotations

from pathlib import Path

from storage.db.database import Database
from storage.memory.memories import MANUAL, Memories, Memory, MemoryKind
from tests.kit.irc_client import irc_client
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril, person
from tests.kit.ircd import embedded_ircd
from tests.kit.lines import NOON
from tests.kit.openai_script import ScriptedOpenAI

OTHER = "#herbs"


def fact(room: str, subject: str, key: str, text: str, source: str = "") -> Memory:
    return Memory(
        layer=MemoryKind.FACT,
        room=room,
        text=text,
        time=NOON,
        subject=subject,
        key=key,
        source=source or subject,
        manual=True,
        confidence=MANUAL,
    )


async def test_facts_are_shared_by_scope_and_identity_and_none_from_private_to_public(
    tmp_path: Path,
) -> None:
    alice, bob = person("alice"), person("bob")
    people = [[f"irc/{alice}", "rooms/ada"]]
    known = {
        "irc.db": [
            fact(f"irc/{ROOM}", alice, "tea", "oolong"),
            fact(f"irc/{ROOM}", bob, "greenhouse spade", "below the blue flowerpot"),
            fact(f"irc/{OTHER}", alice, "herb", "tarragon"),
            fact(f"irc/{alice}", alice, "allergy", "walnuts"),
            fact(f"irc/{bob}", bob, "wage", "secretbob"),
        ],
        "rooms.db": [
            fact("rooms/ada", "ada", "birthday", "secretmay"),
            fact("rooms/ada", "ada", "slander", "secretlie", source="eve"),
            fact("rooms/bob", "bob", "diary", "secretdiary"),
        ],
    }
    for name, facts in known.items():
        async with Database.open(tmp_path / name) as database:
            for each in facts:
                await Memories(database).add(each)
    async with embedded_ircd() as ircd, ScriptedOpenAI() as script:
        config = irc_config(
            tmp_path,
            ircd.port,
            script.url,
            irc={"channels": [ROOM, OTHER]},
            memory={"people": people, "learn": "off"},
        )
        async with irc_tendril(config), irc_client(ircd.port, "alice") as client:
            await client.join(ROOM)
            await client.answer_to("where is the greenhouse spade?")
            await client.join(OTHER)
            await client.answer_to("where is the greenhouse spade?")
            await client.reply_to("Terra: where is the greenhouse spade?", OTHER)
    shown = []
    for request in script.requests:
        text = str(request["messages"][-1]["content"])
        shown.append(text.partition("<known_elsewhere>")[2].partition("</known_elsewhere>")[0])
    on_one, on_both, in_public = shown
    assert "tea = oolong" in on_one
    assert "below the blue flowerpot (told in #terrarium)" in on_one
    assert "birthday = secretmay (told in private)" in on_one
    assert "tarragon" not in on_one
    assert "tarragon" in on_both
    assert in_public == ""  # the other channel is no place of its scope
    for hidden in ("secretbob", "secretlie", "secretdiary"):
        assert all(hidden not in str(request) for request in script.requests)

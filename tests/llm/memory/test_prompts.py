"""What the prompts that make memories show of turns."""

from __future__ import annotations

from datetime import UTC, datetime

from llm.memory.consolidation import episode_messages, facts_messages
from llm.messages.message import NO_ASKER
from storage.memory.memories import RoomTurn


def test_of_a_turn_that_nobody_asked_for_memory_is_shown_what_happened() -> None:
    turn = RoomTurn(
        1,
        datetime(2026, 11, 25, tzinfo=UTC),
        "irc/#laser/rafi",
        "rafi",
        (
            {"role": "user", "name": NO_ASKER, "content": "rafi uses E-21"},
            {"role": "assistant", "content": "So do I."},
        ),
    )
    happened = "rafi uses E-21"
    for messages, lines in (
        (episode_messages([turn], 500), f"{happened}\nyou: So do I."),
        (facts_messages([turn], 500), f"1 {happened}"),
    ):
        assert messages[1]["content"] == f"<memory>\n{lines}\n</memory>"

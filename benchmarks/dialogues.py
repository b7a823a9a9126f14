"""The talk of small channels with questions about it: `questions/dialogues/HALF/NAME.tsv`.

A file has the lines of a channel, with the day (0 or before), the time, the nick and the text of
each; after an empty line follow questions, each with its kind, the asker, the text, and the numbers
of the lines that answer it (from 1, none if no line does), separated by tabs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from benchmarks import ubuntu
from storage.chat_log.event import Event, EventType, Place

FOLDER = Path(__file__).parent / "questions" / "dialogues"


@dataclass(frozen=True, slots=True)
class DialogueQuestion:
    """A question about a dialogue, with the events that answer it.

    The kinds are "literal", "paraphrased", "follow" (only clear after the question before it;
    `text` begins with that), "near" (its subject is spoken of, but not this) and "never".
    """

    kind: str
    text: str
    answers: frozenset[tuple[str, str]]
    """The nick and the text of each line that answers the question."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The events of one channel, in `place`, and the questions about them."""

    place: Place
    events: Sequence[Event]
    questions: Sequence[DialogueQuestion]


def dialogues(half: str) -> Iterator[Dialogue]:
    """Yield the dialogues of a half, "seen" or "unseen"."""
    for path in sorted((FOLDER / half).glob("*.tsv")):
        said, _, asked = path.read_text(encoding="utf-8").partition("\n\n")
        place = Place("dialogues", f"#{path.stem}")
        lines = [line.split("\t") for line in said.split("\n")]
        events = [
            Event(
                network=place.network,
                channel=place.channel,
                type=EventType.PRIVMSG,
                time=_time(day, clock, number),
                nick=nick,
                user="u",
                host="host.example.org",
                text=text,
            )
            for number, (day, clock, nick, text) in enumerate(lines)
        ]
        yield Dialogue(place, events, list(_questions(asked, events)))


def _time(day: str, clock: str, number: int) -> datetime:
    hour, minute = map(int, clock.split(":"))
    # A tenth of a second for each line keeps those of one minute in order.
    after = timedelta(days=int(day), hours=hour, minutes=minute, seconds=number / 10)
    return ubuntu.BEGIN + after


def _questions(asked: str, events: Sequence[Event]) -> Iterator[DialogueQuestion]:
    before = ""
    for line in filter(None, asked.split("\n")):
        kind, _, text, numbers = line.split("\t")
        answers = [events[int(number) - 1] for number in numbers.split(",") if number]
        whole = f"{before} {text}" if kind == "follow" else text
        before = whole
        yield DialogueQuestion(
            kind, whole, frozenset((event.nick, event.text) for event in answers)
        )

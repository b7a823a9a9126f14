"""Questions about what was said: "who said ... about ...?", "when did bob last speak?"."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from llm.reading.reading import Reading
from llm.reading.spans import ALL_TIME, TimeSpan


class Wish(Enum):
    """Which of the matching lines are wanted."""

    BEST = "best"
    NEWEST = "newest"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class LogQuestion:
    """A question to the log for lines by `nick` (None: anybody) about `topic` ("": anything) within
    a time `span`.

    `about_time`: it asks when that was said. `whole_topic` includes the words that were taken for
    the span, as they may belong to the topic.
    """

    topic: str
    nick: str | None = None
    wish: Wish = Wish.BEST
    about_time: bool = False
    span: TimeSpan = ALL_TIME
    whole_topic: str = ""


def log_question(reading: Reading, person: str) -> LogQuestion | None:
    """Return what a question asks of the log, None if it asks nothing of it. `person` is the nick
    of somebody who has spoken, "" if it names nobody."""
    slots, kind = reading.slots, reading.kind
    topic = " ".join(word for word in slots.topic.split() if word.casefold() != person.casefold())
    wish = {"last": Wish.NEWEST, "first": Wish.OLDEST, "": Wish.BEST}[slots.wants]
    whole = f"{topic} {slots.span.words}".strip()
    match kind:
        case "who_said" | "search" if topic:
            nick = None if kind == "who_said" else person or None
            return LogQuestion(topic, nick, wish, False, slots.span, whole)
        case "said_by" if person:
            by_time = Wish.NEWEST if wish is Wish.BEST and not topic else wish
            return LogQuestion(topic, person, by_time, False, slots.span, whole)
        case "when_said" if topic or person:
            by_time = Wish.NEWEST if wish is Wish.BEST and not (person and topic) else wish
            return LogQuestion(topic, person or None, by_time, True, slots.span, whole)
        case "who_said" | "said_by" | "search" if slots.span:
            return LogQuestion("", person or None, wish, False, slots.span, whole)
    return None

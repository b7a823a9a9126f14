"""Question sets, and the schedule by which they are asked in a channel."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter

FOLDER = Path(__file__).parents[1] / "questions"
Half = Literal["seen", "unseen"]

_NICKS = """
mira jonas tuxkid ravenna petrus zoe_ hal9k lindsay oskar bytewolf nadia quim fenn marlow ingrid
tobi sable yusuf corvin elke dmitri pixie rhys harbour anouk brann lupe wren kestrel ottoman"""
NICKS = tuple(_NICKS.split())
"""The people in the channel."""

_SEED = 1
_AHEAD = 4  # most questions between a planted line and the first question about it
_AGAIN = (8, 20)  # questions between the two wordings of a question
_BETWEEN = (5, 10)  # lines of chatter between two questions

T = TypeVar("T")


class _FromFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlantedLine(_FromFile):
    """A line said by `nick` or, if that is empty, by the next asker."""

    text: str
    nick: str = ""


class SecondQuestion(_FromFile):
    """A follow-up question of the same person, asked after the answer."""

    question: str
    expect: tuple[str, ...]


class SetItem(_FromFile):
    """One question of a set; benchmarks/questions/README.md explains the fields."""

    id: str
    half: Half = "unseen"
    question: str
    paraphrase: str = ""
    nick: str = ""
    text: str = ""
    lines: tuple[PlantedLine, ...] = ()
    before: tuple[PlantedLine, ...] = ()
    expect: tuple[str, ...] = ()
    reject: tuple[str, ...] = ()
    check: str = ""
    due: int | None = None
    then: SecondQuestion | None = None
    about_bot: bool = False

    @property
    def planted(self) -> tuple[PlantedLine, ...]:
        """The lines that others say in the channel, some time before the question."""
        own = (PlantedLine(nick=self.nick, text=self.text),) if self.text else ()
        return own + self.lines

    @property
    def speakers(self) -> frozenset[str]:
        """The nicks of the lines that the question is about; they do not ask it."""
        return frozenset(line.nick for line in self.planted + self.before if line.nick)


SETS = ("general", "channel", "skills", "commands", "who_said")


def questions(name: str, part: str = "items") -> Sequence[SetItem]:
    """Return the items of a part of the question set `name`. Raises pydantic's ValidationError."""
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    sets = TypeAdapter(dict[str, tuple[SetItem, ...]]).validate_json(text)
    return sets[part]


@dataclass(frozen=True, slots=True)
class ScheduledQuestion:
    """A question with its asker and the chatter in the pause before it.

    `group` is its set, or "paraphrase"; results are counted by group. `chatter` is the number of
    ordinary lines in the pause, `planted` the facts said in it, for this question or one that
    follows soon; people in `silent` say no ordinary lines.
    """

    number: int
    group: str
    item: SetItem
    text: str
    asker: str
    chatter: int
    planted: tuple[PlantedLine, ...] = ()
    silent: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Draft:
    group: str
    item: SetItem
    text: str
    planted: list[PlantedLine] = field(default_factory=list)


def schedule(sets: Sequence[str], number: int | None = None) -> list[ScheduledQuestion]:
    """Return the questions of the sets in a fixed pseudo-random order.

    With a `number`, exactly so many: the first ones, which have about the same share of each set,
    or all of them, then general knowledge repeated.
    """
    chance = random.Random(_SEED)
    drafts = _interleaved({name: questions(name) for name in sets}, chance)
    if number is not None:
        again = cycle(_shuffled(questions("general"), chance))
        while len(drafts) < number:
            item = next(again)
            drafts.append(_Draft("general", item, item.question))
        drafts = drafts[:number]
    _plant(drafts, chance)
    askers = cycle(_shuffled(NICKS, chance))
    scheduled = []
    for place, draft in enumerate(drafts):
        asker = next(nick for nick in askers if nick not in draft.item.speakers)
        scheduled.append(
            ScheduledQuestion(
                number=place + 1,
                group=draft.group,
                item=draft.item,
                text=draft.text,
                asker=asker,
                chatter=chance.randint(*_BETWEEN),
                planted=tuple(draft.planted),
                silent=draft.item.speakers,
            )
        )
    return scheduled


def _interleaved(sets: Mapping[str, Sequence[SetItem]], chance: random.Random) -> list[_Draft]:
    """Return all questions, each set spread evenly, the two wordings of a question apart."""
    total = sum(len(items) for items in sets.values()) + len(sets.get("channel", ()))
    keyed: list[tuple[float, int, _Draft]] = []
    numbers = count()
    for name, items in sets.items():
        for place, item in enumerate(_shuffled(items, chance)):
            key = (place + chance.random()) / len(items)
            wordings = [(name, item.question)]
            if item.paraphrase:
                wordings.append(("paraphrase", item.paraphrase))
            if place % 2:  # either wording is asked first half of the time
                wordings.reverse()
            for group, text in wordings:
                keyed.append((key, next(numbers), _Draft(group, item, text)))
                key += chance.randint(*_AGAIN) / total
    return [draft for _, _, draft in sorted(keyed, key=lambda each: each[:2])]


def _plant(drafts: Sequence[_Draft], chance: random.Random) -> None:
    """Add each planted line to one draft, at or shortly before the first question about it."""
    seen: set[str] = set()
    for place, draft in enumerate(drafts):
        item = draft.item
        if item.planted and item.id not in seen:
            seen.add(item.id)
            # Questions about what was said last need their lines in the pause just before them.
            is_about_last = item.check or " last " in item.question
            ahead = 0 if is_about_last else chance.randint(0, min(place, _AHEAD))
            drafts[place - ahead].planted.extend(item.planted)


def _shuffled(values: Sequence[T], chance: random.Random) -> list[T]:
    return chance.sample(values, len(values))

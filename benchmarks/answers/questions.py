"""The question sets, and the order in which a channel is asked them."""

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
"""Who is in the channel, beside the bot."""

_SEED = 1
_AHEAD = 4  # questions, at most, from a planted line to the first question about it
_AGAIN = (8, 20)  # questions from one wording of a question to the other
_BETWEEN = (5, 10)  # lines that people say between two questions

T = TypeVar("T")


class _FromFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlantedLine(_FromFile):
    """Something that somebody says; without a nick it is whoever asks next."""

    text: str
    nick: str = ""


class SecondQuestion(_FromFile):
    """A question by the same person, after the answer to the first."""

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
        """What others say in the channel, some time before the question."""
        own = (PlantedLine(nick=self.nick, text=self.text),) if self.text else ()
        return own + self.lines

    @property
    def speakers(self) -> frozenset[str]:
        """Whoever says something that the question is about; they do not ask it."""
        return frozenset(line.nick for line in self.planted + self.before if line.nick)


SETS = ("general", "channel", "skills", "commands", "who_said")


def questions(name: str, part: str = "items") -> Sequence[SetItem]:
    """The items of a set. Raises pydantic's ValidationError."""
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    sets = TypeAdapter(dict[str, tuple[SetItem, ...]]).validate_json(text)
    return sets[part]


@dataclass(frozen=True, slots=True)
class ScheduledQuestion:
    """A question in its turn: what is said in the pause before it, and by whom it is asked.

    `group` is what it counts for: its set, or "paraphrase". `planted` are the lines that are said
    in that pause, for this question or for one that comes soon; `silent` say nothing in it.
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
    """All questions of the sets, or the first `number` of them, always in the same order.

    Every beginning has about its share of each set. When there are fewer than `number`, those of
    general knowledge are asked again.
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
    """Every set spread evenly; both wordings of a question some questions apart."""
    total = sum(len(items) for items in sets.values()) + len(sets.get("channel", ()))
    keyed: list[tuple[float, int, _Draft]] = []
    numbers = count()
    for name, items in sets.items():
        for place, item in enumerate(_shuffled(items, chance)):
            key = (place + chance.random()) / len(items)
            wordings = [(name, item.question)]
            if item.paraphrase:
                wordings.append(("paraphrase", item.paraphrase))
            if place % 2:  # each wording is the first one half of the time
                wordings.reverse()
            for group, text in wordings:
                keyed.append((key, next(numbers), _Draft(group, item, text)))
                key += chance.randint(*_AGAIN) / total
    return [draft for _, _, draft in sorted(keyed, key=lambda each: each[:2])]


def _plant(drafts: Sequence[_Draft], chance: random.Random) -> None:
    """Have each line said once, before the first question about it."""
    seen: set[str] = set()
    for place, draft in enumerate(drafts):
        item = draft.item
        if item.planted and item.id not in seen:
            seen.add(item.id)
            is_about_last = item.check or " last " in item.question
            ahead = 0 if is_about_last else chance.randint(0, min(place, _AHEAD))
            drafts[place - ahead].planted.extend(item.planted)


def _shuffled(values: Sequence[T], chance: random.Random) -> list[T]:
    return chance.sample(values, len(values))

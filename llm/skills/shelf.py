"""All skills that there are: those of installed packages, and those in the operator's folder.

They come in by the same layout, a folder with `SKILL.md` and Python beside it. A package names its
folder, which is a Python package too, by an entry point of the group `terrarium.skills`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

import structlog

from llm.skills.hint import HintContext, WorkedOut
from llm.skills.plugin import modules_of, run_guarded
from llm.skills.skill import FILE, Skill
from llm.threads.model import load_model
from llm.threads.rarity import InverseDocumentFrequency, words
from terrarium.config import ConfigError

GROUP = "terrarium.skills"

MOST = 3
"""Skills that a question brings in."""

_ENOUGH = 1.0  # of a description's words: one that nobody uses, or some rarer ones
_HINT_TIME = 1.0  # seconds
_SILENT = WorkedOut("")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Match:
    """A skill that a question asks for; the hint is what the skill says to it right away, and
    `is_whole` says whether that settles the whole question."""

    skill: Skill
    score: float
    hint: str = ""
    is_whole: bool = False


class SkillRegistry:
    """Skills by name, and what is wrong with those that cannot be used."""

    def __init__(self, skills: Mapping[str, Skill], problems: Mapping[str, str]) -> None:
        self.skills = skills
        self.problems = problems

    @classmethod
    def read(cls, folder: Path, before: SkillRegistry) -> SkillRegistry:
        """Read everything anew. What is wrong is reported in the log and stays as `before`; a
        skill of the folder takes the place of a package's of the same name."""
        skills: dict[str, Skill] = {}
        problems: dict[str, str] = {}
        for name, source in _sources(folder):
            try:
                skills[name] = (
                    _load_package(source)
                    if isinstance(source, EntryPoint)
                    else _load_folder(source)
                )
            except ConfigError as error:
                problems[name] = str(error)
                if name in before.skills:
                    skills[name] = before.skills[name]
                _log.warning("skills.skipped", skill=name, reason=str(error))
        return cls(skills, problems)

    async def matching(
        self,
        question: str,
        allowed: Collection[str] | None,
        context: HintContext | None = None,
    ) -> list[Match]:
        """The skills that a question asks for, the fittest first: by a trigger, by the words of
        their description, or because they can say something to it.

        `context` is when and where it is asked; without one, that is now and in UTC.
        """
        asked = words(question)
        skills = [each for each in self.skills.values() if allowed is None or each.name in allowed]
        hints = await _hints(skills, question, context or HintContext(datetime.now(UTC)))
        found = []
        for skill in skills:
            hint = hints.get(skill.name, _SILENT)
            score = 2.0 * (skill.is_triggered(question) + hint.is_whole) + bool(hint.text)
            score += _common(skill, asked)
            found.append(Match(skill, score, hint.text, hint.is_whole))
        found.sort(key=lambda match: (-match.score, match.skill.name))
        return [match for match in found if match.score >= _ENOUGH][:MOST]


async def worked_out(
    registry: SkillRegistry,
    question: str,
    allowed: Collection[str] | None,
    *,
    now: datetime,
    zone: tzinfo,
) -> str | None:
    """Return what to say to a question that a skill settles by itself, word by word; else None.

    `allowed` are the names of the skills that may be asked (None: all), `now` and `zone` the time
    and the time zone of whoever asks.
    """
    matches = await registry.matching(question, allowed, HintContext(now, zone))
    return next((match.hint for match in matches if match.is_whole), None)


def _sources(folder: Path) -> Iterator[tuple[str, EntryPoint | Path]]:
    for entry in entry_points(group=GROUP):
        yield entry.name, entry
    for path in sorted(folder.glob(f"*/{FILE}")):
        yield path.parent.name, path.parent


@cache
def _import(entry: EntryPoint) -> ModuleType:
    module = run_guarded(entry.value, entry.load)
    if not isinstance(module, ModuleType) or not module.__file__:
        raise ConfigError(f"{entry.value} is no package")
    return module


def _load_package(entry: EntryPoint) -> Skill:
    module = _import(entry)
    assert module.__file__
    return Skill.read(Path(module.__file__).parent, (module,))


def _load_folder(folder: Path) -> Skill:
    return Skill.read(folder, modules_of(folder))


async def _hints(
    skills: Iterable[Skill], question: str, context: HintContext
) -> dict[str, WorkedOut]:
    """What skills say to a question, by their names; one that fails says nothing. Most say it at
    once, so they are asked one after the other, and all together have the time of one."""
    hints: dict[str, WorkedOut] = {}
    until = asyncio.get_running_loop().time() + _HINT_TIME
    for name, hint in [(skill.name, skill.hint) for skill in skills if skill.hint]:
        try:
            async with asyncio.timeout_at(until):
                if said := await hint(question, context):
                    hints[name] = said
        except Exception as error:  # noqa: BLE001 -- anybody's code
            _log.warning("skills.no_hint", skill=name, reason=type(error).__name__)
    return hints


def _common(skill: Skill, asked: frozenset[str]) -> float:
    """What a question and a description have in common, rare words more: from 0 to 1 a word."""
    idf = _rarity()
    shared = asked & _described(skill.description)
    return sum(idf.squared_weight(word) for word in shared if not idf.is_common(word)) / 121


_described = lru_cache(1_000)(words)


@cache
def _rarity() -> InverseDocumentFrequency:
    return InverseDocumentFrequency(load_model().words, load_model().lines)

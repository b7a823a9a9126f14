"""One skill: a folder with a `SKILL.md` and, if it can do something by itself, Python beside it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Annotated

from pydantic import BaseModel, Field

from llm.skills.hint import Hint, hint_in
from llm.tools.toolbox import tools_in
from terrarium.config import ConfigError
from terrarium.front_matter import NAME, parse

FILE = "SKILL.md"


class _SkillFrontMatter(BaseModel):
    """The keys at the head of SKILL.md."""

    name: str = Field(pattern=f"^{NAME.pattern}$")
    description: str = Field(min_length=1, max_length=500)
    triggers: tuple[Annotated[str, Field(pattern=r"\w", max_length=100)], ...] = ()


@dataclass(frozen=True, slots=True)
class Skill:
    """`body` is what the model reads when a question matches; `tools` are `@tool` functions, and
    `hint` is asked about every question."""

    name: str
    description: str
    triggers: tuple[str, ...] = ()
    body: str = ""
    tools: tuple[Callable[..., Awaitable[object]], ...] = ()
    hint: Hint | None = None

    @classmethod
    def read(cls, folder: Path, modules: tuple[ModuleType, ...] = ()) -> Skill:
        """The skill in a folder with the Python that belongs to it. Raises ConfigError."""
        front, body = parse(_SkillFrontMatter, folder / FILE)
        if front.name != folder.name:
            raise ConfigError(f'{folder / FILE}: name: must be the folder\'s, "{folder.name}"')
        tools = tuple(function for module in modules for function in tools_in(module))
        hints = [hint for module in modules if (hint := hint_in(module))]
        if not (body or tools or hints):
            raise ConfigError(f"{folder / FILE} says nothing below its front matter")
        return cls(
            front.name,
            front.description,
            front.triggers,
            body,
            tools,
            hints[0] if hints else None,
        )

    def is_triggered(self, question: str) -> bool:
        """Whether one of the triggers is in a question."""
        return bool(self.triggers) and _pattern(self.triggers).search(question) is not None


@lru_cache(1_000)
def _pattern(triggers: tuple[str, ...]) -> re.Pattern[str]:
    """The words of one of the triggers, one after another and whole; `*` stands for the rest of a
    word."""
    phrases = [
        r"\s+".join(re.escape(word).replace(r"\*", r"\w*") for word in trigger.split())
        for trigger in triggers
    ]
    return re.compile(rf"(?<!\w)(?:{'|'.join(phrases)})(?!\w)", re.IGNORECASE)

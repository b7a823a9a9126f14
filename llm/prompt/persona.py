"""Personas: who the bot is, as Markdown files with front matter (docs/personas.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Annotated

import structlog
from pydantic import BaseModel, Field

from llm.messages.prompt_text import escape_tags
from terrarium.config import ConfigError
from terrarium.front_matter import NAME, parse

_log = structlog.get_logger()

Names = tuple[Annotated[str, Field(min_length=1, max_length=64)], ...]


class _FrontMatter(BaseModel):
    """The keys at the head of the file."""

    name: str = Field("", pattern=f"^({NAME.pattern})?$")
    description: str = Field("", max_length=500)
    short: str = Field("", max_length=500)
    model: str = Field("", max_length=200)
    temperature: float | None = Field(None, ge=0, le=2)
    max_tokens: int | None = Field(None, ge=1)
    tools: Names | None = None
    skills: Names | None = None


@dataclass(frozen=True, slots=True)
class Persona:
    """A text in which `$names` stand for what differs from place to place, and what differs from
    the settings for as long as it speaks: None and "" are "as configured". `short` takes the place
    of the text for small models. `tools` and `skills` are all that it may use; None is all that
    there are."""

    text: str
    name: str = ""
    description: str = ""
    short: str = ""
    model: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    tools: tuple[str, ...] | None = None
    skills: tuple[str, ...] | None = None

    @classmethod
    def read(cls, path: Path) -> Persona:
        """The persona in a file. Raises ConfigError."""
        front, text = parse(_FrontMatter, path)
        if not text:
            raise ConfigError(f"{path} says nothing below its front matter")
        return cls(text, **dict(front))

    def render(self, values: Mapping[str, str], *, short: bool = False) -> str:
        """Return the text, or its `short` form where there is one, with `values`, which are made
        harmless, in place of its `$names`."""
        harmless = {name: escape_tags(value) for name, value in values.items()}
        text = self.short if short and self.short else self.text
        return Template(text).safe_substitute(harmless)


class Personas:
    """The tendril's own persona, those of a folder by the names of their files, and what is wrong
    with those that could not be read."""

    def __init__(
        self, own: Persona, named: Mapping[str, Persona], problems: Mapping[str, str]
    ) -> None:
        self.own = own
        self.by_name = named
        self.problems = problems
        self._missed: set[str] = set()

    @classmethod
    def read(cls, own: Path, folder: Path, before: Personas) -> Personas:
        """Read the file `own` and all Markdown files in `folder`.

        A file of the folder that is wrong is reported in the log, and its persona is as `before`.
        Raises ConfigError for `own`.
        """
        try:
            own_persona = Persona.read(own)
        except ConfigError as error:
            raise ConfigError(f"[agent] personas: {error}") from error
        named: dict[str, Persona] = {}
        problems: dict[str, str] = {}
        for path in sorted(folder.glob("*.md")):
            name = path.stem.lower()
            try:
                named[name] = _read_named(path, name)
            except ConfigError as error:
                problems[name] = str(error)
                _log.warning("personas.kept", persona=name, reason=str(error))
                if name in before.by_name:
                    named[name] = before.by_name[name]
        return cls(own_persona, named, problems)

    def choose(self, chosen: str | None) -> Persona:
        """The persona that somebody has chosen by its name or whose text they have written; the
        tendril's own when it is None, or the name of one that is no longer there."""
        if not chosen:
            return self.own
        if persona := self.by_name.get(chosen.lower()):
            return persona
        if not NAME.fullmatch(chosen.lower()):
            return Persona(chosen)
        if chosen not in self._missed:
            self._missed.add(chosen)
            _log.warning("personas.unknown", persona=chosen)
        return self.own

    def require(self, chosen: str) -> None:
        """Raises ValueError, with a sentence for people, for the name of a persona that there is
        not."""
        if NAME.fullmatch(chosen.lower()) and chosen.lower() not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none yet"
            raise ValueError(f"There is no persona {chosen!r}; there are: {known}.")


def _read_named(path: Path, name: str) -> Persona:
    """The persona that people call by the file's name, which the file may say too."""
    persona = Persona.read(path)
    if not NAME.fullmatch(name) or persona.name not in ("", name):
        raise ConfigError(f"{path}: name: must be the file's, in letters, digits, - and _")
    return persona

"""The parts of a prompt beside memory and log: persona, hints, skills, tools for one question."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from llm.mcp.servers import McpServers
from llm.messages.sections import PromptSection
from llm.prompt.budget import PromptBudget
from llm.prompt.guidance import CORE, STATUS, TOOLS, helps, tools_called_for
from llm.prompt.persona import Persona, Personas
from llm.skills.hint import HintContext
from llm.skills.learned import lessons
from llm.skills.registry import Match, SkillRegistry
from llm.tools.toolbox import Rights, Toolbox
from storage.db.errors import StorageError
from storage.memory.taught_skills import FILES, SkillTable
from terrarium.config import Config

_ROOMS = 1_000  # whose skills are kept in mind
_SKILLS = 1_500
_WORKED_OUT = 500

Function = Callable[..., Awaitable[object]]

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """The request for a prompt: a question in a room, who is to answer it, with what `values` in
    place of the persona's `$names`, and which tools and rights there are. Where somebody
    `wants_status`, the model is asked how the conversation stands. `context` is when and where it
    is asked; None: now, in UTC."""

    text: str
    room: str
    persona: Persona
    values: Mapping[str, str]
    tools: Sequence[object] = ()
    rights: Rights = frozenset
    wants_status: bool = False
    context: HintContext | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """`system` is the same for all questions of a room; the sections belong to this one. `hints` is
    what skills say to it, and `worked_out` the whole answer where one of them settles it. `skills`
    and `lessons` are the names of what it brought in."""

    system: str
    beside: tuple[PromptSection, ...]
    hints: str
    worked_out: str
    toolbox: Toolbox
    skills: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()


class PromptBuilder:
    """Personas and skills as their files have them at the moment, and the tools of the connected
    MCP servers."""

    def __init__(self) -> None:
        self.personas = Personas(Persona(""), {}, {})
        self.registry = SkillRegistry({}, {})
        self.mcp_servers = McpServers()
        self._paths = (Path(), Path(), Path())
        self._taken: OrderedDict[str, dict[str, None]] = OrderedDict()

    @property
    def problems(self) -> dict[str, str]:
        """The errors of files that cannot be used, by "persona NAME" or "skill NAME"."""
        personas = {f"persona {name}": why for name, why in self.personas.problems.items()}
        return personas | {f"skill {name}": why for name, why in self.registry.problems.items()}

    def read(self, own: Path, personas: Path, skills: Path, config: Config | None = None) -> None:
        """Read all files anew: the persona `own` and the two folders, the skills with the settings
        of `config`. Raises ConfigError for `own`, and then everything is as before."""
        found = Personas.read(own, personas, self.personas)
        self.registry = SkillRegistry.read(skills, self.registry, config)
        self.personas, self._paths = found, (own, personas, skills)

    def files(self) -> Iterator[Path]:
        """The names of the files that were read."""
        own, personas, skills = self._paths
        yield own
        yield from personas.glob("*.md")
        yield from skills.glob("*/*.*")

    def complaint(self) -> str:
        """The errors of files in a sentence; "" when all is well."""
        broken = "; ".join(f"{name}: {why}" for name, why in self.problems.items())
        return f"As before, because of errors: {broken}" if broken else ""

    async def build(
        self, table: SkillTable, request: PromptRequest, budget: PromptBudget
    ) -> Prompt:
        """Make the prompt of a question for a model with this budget."""
        matches = await self.registry.matching(
            request.text, request.persona.skills, request.context
        )
        toolbox = Toolbox.from_owners(
            *request.tools,
            *self._functions(request.room, matches),
            self.mcp_servers,
            rights=request.rights,
        ).only(request.persona.tools)
        hints = "\n".join(filter(None, (match.hint for match in matches)))
        whole = next((match.hint for match in matches if match.is_whole), "")
        skills = tuple(match.skill.name for match in matches)
        if budget.is_small:
            called_for = tools_called_for(request.text) if budget.may_call else ()
            system = request.persona.render(request.values, short=True)
            return Prompt(system, (), hints, whole, toolbox.only(called_for), skills)
        learned, taught = await _lessons(table, request)
        usable = toolbox.names() if budget.may_call else ()
        rules = [CORE, TOOLS if usable else "", STATUS if request.wants_status else ""]
        system = f"{request.persona.render(request.values)}\n\n{' '.join(filter(None, rules))}"
        sections = [*_sections(request.text, usable, matches), *learned]
        beside = tuple(section for section in sections if str(section))
        return Prompt(system, beside, hints, whole, toolbox, skills, taught)

    def _functions(self, room: str, matches: Sequence[Match]) -> list[Function]:
        """The tools of all skills that a question of the room has ever brought in: a list of tools
        that changes with each question would have the engine read everything anew."""
        taken = self._taken.setdefault(room, {})
        self._taken.move_to_end(room)
        if len(self._taken) > _ROOMS:
            self._taken.popitem(last=False)
        taken |= dict.fromkeys(match.skill.name for match in matches)
        skills = (self.registry.skills[name] for name in taken if name in self.registry.skills)
        return [function for skill in skills for function in skill.tools]

    async def count_skills(
        self, table: SkillTable, room: str, prompt: Prompt, *, well: bool
    ) -> None:
        """Count the skills that a prompt brought in."""
        try:
            if prompt.skills:
                await table.record_use(FILES, prompt.skills, well=well)
            if prompt.lessons:
                await table.record_use(room, prompt.lessons, well=well)
        except StorageError as error:  # only a count
            _log.warning("skills.not_counted", error=str(error))


def _sections(
    question: str, tools: Collection[str], matches: Sequence[Match]
) -> list[PromptSection]:
    """The helps and skills for a question."""
    bodies = (match.skill.body for match in matches)
    hints = (match.hint for match in matches)
    return [
        PromptSection(
            "guidance", "\n".join([*helps(question, tools), *filter(None, bodies)]), _SKILLS
        ),
        PromptSection("worked_out", "\n".join(filter(None, hints)), _WORKED_OUT),
    ]


async def _lessons(
    table: SkillTable, request: PromptRequest
) -> tuple[list[PromptSection], tuple[str, ...]]:
    """Return what people have taught for such a question, and its name."""
    try:
        return await lessons(table, request.room, request.text)
    except StorageError as error:  # the question is answered without
        _log.warning("skills.not_read", error=str(error))
        return [], ()

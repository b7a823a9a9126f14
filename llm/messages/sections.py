"""Named parts of a prompt beside the log and the turns: facts, summaries, skills, and the like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llm.messages.escaping import escape_tags

_CUT = "...[truncated]"


@dataclass(frozen=True, slots=True)
class PromptSection:
    """Data under a `name`, a reserved tag that text cannot forge; ValueError for any other name.

    Of `text` whole lines are shown from its beginning, in `budget` characters; a mark tells that
    there was more. Its string is what the model reads, "" for an empty text.
    """

    name: str
    text: str
    budget: int

    def __post_init__(self) -> None:
        if escape_tags(f"<{self.name}>") == f"<{self.name}>":
            raise ValueError(
                f"{self.name} is no tag that llm.messages.escaping keeps from being forged"
            )

    def __str__(self) -> str:
        text = _cut(self.text.strip(), self.budget)
        return f"<{self.name}>\n{escape_tags(text)}\n</{self.name}>" if text else ""


def within(sections: Sequence[PromptSection], budget: int) -> list[PromptSection]:
    """Fit sections into `budget` characters together, each by its share of the length."""
    lengths = [min(len(section.text), section.budget) for section in sections]
    if (total := sum(lengths)) <= budget:
        return list(sections)
    return [
        replace(section, budget=length * budget // total)
        for section, length in zip(sections, lengths, strict=True)
    ]


def render_sections(sections: Sequence[PromptSection]) -> str:
    """Render the sections, with an empty line between two."""
    return "\n\n".join(filter(None, map(str, sections)))


def _cut(text: str, budget: int) -> str:
    """Cut a text to whole lines; the first line is cut when even that is too long."""
    if len(text) <= budget:
        return text
    kept = text[: max(0, budget - len(_CUT) - 1) + 1]
    whole, newline, _ = kept.rpartition("\n")
    return f"{whole if newline else kept[:-1]}\n{_CUT}" if len(kept) > 1 else ""

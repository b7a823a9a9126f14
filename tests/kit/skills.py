"""Hints of skills without a turn."""

from __future__ import annotations

from collections.abc import Collection

from llm.skills.hint import HintContext
from llm.skills.registry import SkillRegistry


async def whole_hint(
    registry: SkillRegistry,
    question: str,
    context: HintContext,
    allowed: Collection[str] | None = None,
) -> str | None:
    """Return the hint that answers a question without a model, None if no skill has one."""
    matches = await registry.matching(question, allowed, context)
    return next((m.hint.text for m in matches if m.hint and m.hint.is_whole), None)

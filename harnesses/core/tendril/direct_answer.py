"""Answers that need no model, and the log lines that answer a question."""

from __future__ import annotations

from harnesses.core.tendril.preparation import reading_of
from harnesses.core.tendril.turn import TurnRequest
from llm.answerers.answer import AskedQuestion, DirectAnswer
from llm.answerers.answerers import first_answer
from llm.client.profile import Profile
from llm.log_questions.answers import QuotedAnswer
from llm.prompt.builder import Prompt
from llm.prompt.log_window import quoted_answer


async def direct_answer(
    request: TurnRequest, profile: Profile, prompt: Prompt, quoted: QuotedAnswer | None
) -> DirectAnswer | None:
    """Return the first answer to a person's question that needs no model."""
    turn = AskedQuestion(
        profile=profile,
        worked_out=prompt.worked_out,
        quoted=quoted,
        log_window=request.log_window if request.is_by_person else None,
        room=request.room_view,
    )
    return await first_answer(reading_of(request), turn)


async def find_quotes(request: TurnRequest) -> QuotedAnswer | None:
    """Return the log lines that answer a person's question, or None."""
    if request.log_window is None or request.image or not request.is_by_person:
        return None
    return await quoted_answer(request.log_window, reading_of(request))

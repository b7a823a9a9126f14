"""What goes with a question to the model, and with its answer."""

from __future__ import annotations

from harnesses.core.tracing import Occasion
from llm.accounts import ANSWER
from llm.client import AgentClient, Call, Priority
from llm.models import Models
from llm.outcome import Outcome
from llm.prompts import Asking
from llm.reviewer import Reviewer


async def call_of(
    tendril: str, models: Models, asking: Asking, occasion: Occasion, priority: Priority, model: str
) -> Call:
    """What goes with every request of a turn; the model is the wanted one or the persona's, if
    the server has it."""
    persona = asking.persona
    return Call(
        f"{tendril}/{occasion.conversation}",
        priority,
        await models.named(model) or await models.named(persona.model),
        purpose=ANSWER if occasion.profile in ("standard", "command") else occasion.profile,
        room=asking.room,
        temperature=persona.temperature,
        max_tokens=persona.max_tokens,
    )


async def reviewed(client: AgentClient, call: Call, asking: Asking, outcome: Outcome) -> Outcome:
    """The outcome, or a better one if it is long enough for a second look."""
    if asking.review_over is None or len(outcome.text) <= asking.review_over:
        return outcome
    return await Reviewer(client, call).reviewed(asking.text, outcome)

"""Answers one request of a tendril: with the log, with skills, and with the model."""

from __future__ import annotations

from functools import partial

import structlog

from harnesses.core.services.peers import PeerTools
from harnesses.core.tendril.medium import TendrilMedium
from harnesses.core.tendril.model_run import ModelRun
from harnesses.core.tendril.preparation import build_prompt, choose_model, create_context
from harnesses.core.tendril.turn import ConversationQueue, TurnRequest, TurnResult
from llm.agent.outcome import Outcome
from llm.agent.tool_executor import UNASKED
from llm.agent.trace import Beside, Trace
from llm.client.client import RequestOptions
from llm.memory.room import RoomMemory
from llm.prompt.builder import direct_answer
from llm.prompt.log_window import quoted_answer
from storage.runs.runs import Run

BLIND = "My model cannot look at images; please tell me in words what is in it."

_log = structlog.get_logger()


class Responder:
    """Answers the requests of a tendril, from its resources and by its `@tool` methods."""

    def __init__(self, tendril: TendrilMedium) -> None:
        self._tendril = tendril

    async def answer(
        self, request: TurnRequest, queue: ConversationQueue, memory: RoomMemory
    ) -> TurnResult:
        """Answer a question that has its turn: without the model where that settles it. Raises
        ModelError."""
        tendril = self._tendril
        choice = await choose_model(tendril, request, memory)
        options, budget = choice.options, choice.budget
        if budget.is_small and request.profile in UNASKED:
            return TurnResult("")  # it cannot judge whether there is something worth saying
        if request.image and not options.sees:
            return TurnResult(BLIND, ok=False)
        asking = self._peer_tools(request)
        prompt = await build_prompt(tendril, request.with_tools(asking), memory, choice)
        trace = _trace(tendril, request, options, queue.spawn)
        request = await request.with_logged_question()
        quoted = None
        if request.log_window and request.is_by_person and not request.image:
            quoted = await quoted_answer(request.log_window, request.text)
        context = await create_context(tendril, request, memory, budget, prompt, quoted)
        async with trace:
            direct = direct_answer(request.text, prompt.worked_out, quoted, budget)
            if direct is not None and not request.image:
                outcome = Outcome.without_model(direct)
            else:
                await context.load()
                run = ModelRun(tendril, request, context, trace, asking)
                outcome = await run.answer(options, prompt.toolbox, queue, quoted)
                if budget.is_small and quoted:
                    outcome = outcome.ending_with(quoted.evidence(request.text, outcome.text))
            trace.outcome = outcome
        _log_outcome(request.label, options.id, outcome)
        remember = partial(context.remember, outcome.messages)
        count_skills = partial(
            tendril.prompts.count_skills,
            tendril.skills,
            memory.room,
            prompt,
            well=not outcome.forced,
        )
        return TurnResult.from_outcome(outcome, remember, on_delivered=count_skills)

    def _peer_tools(self, request: TurnRequest) -> PeerTools | None:
        """Return the tool that asks other tendrils; None where nobody is known to be behind the
        question, or nothing of it may be kept, as a question to others is stored on its way."""
        if request.origin is None or request.is_unrecorded:
            return None
        return PeerTools(self._tendril.peers, request.origin)


def _log_outcome(conversation: str, request_id: str, outcome: Outcome) -> None:
    _log.info(
        "turn.done",
        conversation=conversation,
        request=request_id,
        iterations=outcome.iterations,
        forced=outcome.forced,
        prompt_tokens=outcome.usage.prompt,
        cached_tokens=outcome.usage.cached,
        completion_tokens=outcome.usage.completion,
    )


def _trace(
    tendril: TendrilMedium, request: TurnRequest, options: RequestOptions, background: Beside
) -> Trace:
    """Return the trace of a turn, stored in the tendril's runs; `background` finishes it.

    It names nobody where the conversation is private, and holds only numbers where nobody has asked
    and nothing is remembered. Of a question of which nothing is to be kept, nothing is stored.
    """
    log_window = request.log_window
    run = Run(
        request.run or options.id,
        request.conversation if request.keeps else "",
        request.profile,
        options.model or tendril.agent.model,
        tendril.clock.now(),
        log_window.anchor if log_window else 0,
        request.private or not request.keeps,
        tendril.agent.trace_words,
        request.text,
        request.origin.run if request.origin else "",
    )
    store = None if request.is_unrecorded else tendril.runs
    return Trace(run, store, background, log_window.pending_event if log_window else None)

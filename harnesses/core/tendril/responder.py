"""The answer to one turn request: from a skill, from quoted log lines, or from the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import structlog

from harnesses.core.services.peers import PeerTools
from harnesses.core.tendril.medium import TendrilMedium
from harnesses.core.tendril.preparation import (
    Context,
    ModelChoice,
    Pseudonyms,
    build_prompt,
    choose_model,
    create_context,
    create_trace,
)
from harnesses.core.tendril.turn import ConversationQueue, TurnRequest, TurnResult
from llm.agent.agent_loop import AgentLoop, LoopCallbacks, Reviewer
from llm.agent.tool_executor import UNASKED
from llm.agent.trace import Outcome, Trace, now
from llm.answerers.answer import AskedQuestion, DirectAnswer
from llm.answerers.answerers import first_answer
from llm.client.client import RequestOptions
from llm.log_questions.answers import QuotedAnswer
from llm.memory.room import RoomMemory
from llm.messages.errors import Busy, TimedOut, Unreachable, Unsure
from llm.messages.message import Message
from llm.prompt.builder import Prompt

LOST = "I have lost the thread; please ask the whole question."
BLIND = "My model cannot look at images; please tell me in words what is in it."

_log = structlog.get_logger()


class Responder:
    """Answers the requests of a tendril, with its resources and its `@tool` methods."""

    def __init__(self, tendril: TendrilMedium) -> None:
        self._tendril = tendril
        self._pseudonyms = Pseudonyms(
            tendril.config.data, tendril.name, lambda: tendril.clock.now()
        )

    async def answer(
        self, request: TurnRequest, queue: ConversationQueue | None, memory: RoomMemory
    ) -> TurnResult | None:
        """Answer a request whose turn has come in its `queue`; without a queue only if no model is
        needed for it, else return None. Raises ModelError and StorageError."""
        tendril = self._tendril
        choice = await choose_model(tendril, request, memory, self._pseudonyms)
        options, profile, reading = choice.options, choice.profile, request.known_reading
        if profile.is_compact and request.profile in UNASKED:
            return TurnResult("")  # a small model cannot judge whether to speak unasked
        if request.image and not options.accepts_images:
            return TurnResult(BLIND, ok=False)
        peer_tools = self._peer_tools(request)
        prompt = await build_prompt(tendril, request.with_tools(peer_tools), memory, choice)
        trace = create_trace(tendril, request, choice, queue.spawn if queue else None)
        # Only now: the lines before the question are being written to the log while the steps
        # above, which do not read it, run.
        request = await request.with_settled_log()
        # A model that has tools searches the log itself.
        quoted = await request.find_quotes() if profile.offers != "all" else None
        direct = await _direct_answer(request, choice, prompt, quoted)
        if direct is None and queue is None:
            return None
        context = await create_context(tendril, request, memory, choice, prompt, quoted)
        async with trace:
            if reading.kind:
                trace.add_reading(reading.kind, reading.certainty, reading.language)
            if direct is not None:
                trace.add_answer(direct.by, direct.certainty)
                outcome, quoted = Outcome.without_model(direct.text), direct.quoted
            else:
                assert queue  # or it had returned
                await context.load()
                run = ModelRun(tendril, request, context, trace, peer_tools)
                began = now()
                try:
                    outcome = await run.answer(options, prompt, queue)
                except Unsure as error:
                    trace.add_failed_request(
                        options.model or tendril.agent.model, type(error).__name__, began
                    )
                    outcome = Outcome.without_model(error.sentence)
                except (Unreachable, Busy, TimedOut) as error:
                    quoted = quoted or await request.find_quotes()
                    if quoted is None or not quoted.text:
                        raise
                    reason, model = type(error).__name__, options.model or tendril.agent.model
                    _log.warning("turn.quoted_only", reason=reason, error=str(error))
                    trace.add_failed_request(model, reason, began)
                    outcome = Outcome.without_model(quoted.text)
                if profile.is_compact and quoted:
                    outcome = outcome.ending_with(quoted.evidence(request.text, outcome.text))
            trace.outcome = outcome = await self._with_quotes(
                request.text, outcome, context, quoted
            )
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

    async def _with_quotes(
        self, question: str, outcome: Outcome, context: Context, quoted: QuotedAnswer | None
    ) -> Outcome:
        """Return the outcome with the ids of the log lines that the answer quotes, and of those
        that the thoughts and calls of the model quote."""
        lines, beside = outcome.find_quotes(question, context.shown())
        if quoted:
            lines |= quoted.ids_in(outcome.text)
        if not lines | beside:
            return outcome
        resolve = self._tendril.log.chat_log.quoted_lines
        return outcome.quoting(await resolve(lines), await resolve(beside))

    def _peer_tools(self, request: TurnRequest) -> PeerTools | None:
        """Return the tool that asks other tendrils, or None if the request must not use it."""
        # A question to another tendril is stored in the outbox database on its way, so an
        # unrecorded one must not be passed on. Without an origin the other tendril would not know
        # what the person may read.
        if request.origin is None or request.is_unrecorded:
            return None
        origin = replace(request.origin, words=request.asker_words)
        return PeerTools(self._tendril.peers, origin)


async def _direct_answer(
    request: TurnRequest, choice: ModelChoice, prompt: Prompt, quoted: QuotedAnswer | None
) -> DirectAnswer | None:
    """Return the first answer to a person's question that needs no model."""
    if request.image:
        return None
    turn = AskedQuestion(
        profile=choice.profile,
        worked_out=prompt.worked_out,
        quoted=quoted,
        log_window=request.log_window if request.is_by_person else None,
        room=request.room_view,
    )
    return await first_answer(request.known_reading, turn)


class ModelRun:
    """A run of the agent loop for one request, in its loaded context, recorded in `trace`.

    `peer_tools` is the tool that asks other tendrils, None if the request must not use it.
    """

    def __init__(
        self,
        tendril: TendrilMedium,
        request: TurnRequest,
        context: Context,
        trace: Trace,
        peer_tools: PeerTools | None = None,
    ) -> None:
        self._tendril = tendril
        self._request = request
        self._context = context
        self._trace = trace
        self._peer_tools = peer_tools

    async def answer(
        self,
        options: RequestOptions,
        prompt: Prompt,
        queue: ConversationQueue,
    ) -> Outcome:
        """Run the agent loop, and review its answer if the request asks for that. Raises
        ModelError."""
        tendril, request = self._tendril, self._request
        if self._context.is_lost:
            return Outcome.without_model(LOST)
        loop = AgentLoop(
            tendril.client,
            prompt.toolbox,
            options,
            request.limits(tendril.agent),
            # A text that the reviewer may rewrite is not streamed.
            callbacks=LoopCallbacks(
                None if request.review else request.on_text,
                queue.take_followups,
                request.on_activity,
            ),
            # No escalation for an image: the other model may not accept images.
            smart="" if request.image else await tendril.catalog.smart(),
            trace=self._trace,
        )
        if self._peer_tools:
            self._peer_tools.begin(loop, self._trace.run)
        return await self._review(loop.options, await self._run(loop))

    async def _run(self, loop: AgentLoop) -> Outcome:
        """Run the loop, with each prompt fitted to the context window of the current model."""
        # `loop.options` is read anew in each round, because an escalation changes the model.
        counter = self._tendril.token_counter
        image = self._request.image
        reserve = image.tokens if image else 0

        async def fit(steps: Sequence[Message]) -> list[Message]:
            prompt = await self._context.fit(
                steps,
                lambda messages: counter.count(loop.options, messages, loop.schemas, reserve),
                reserve,
            )
            # Attached after counting, because `reserve` is the image's tokens. The question is the
            # last message before the steps.
            if image:
                question = len(prompt) - len(steps) - 1
                prompt[question] = prompt[question] | {"image": image}
            return prompt

        return await loop.run(fit, lambda: counter.shrink(loop.options))

    async def _review(self, options: RequestOptions, outcome: Outcome) -> Outcome:
        if not self._request.review or not outcome.text:
            return outcome
        reviewer = Reviewer(self._tendril.client, options)
        return await reviewer.review(self._request.text, outcome)


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

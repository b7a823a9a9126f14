"""The answer to one turn request: from a skill, from quoted log lines, or from the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic

import structlog

from harnesses.core.services.peers import PeerService, PeerTools
from harnesses.core.tendril.preparation import (
    Context,
    ModelChoice,
    Pseudonyms,
    build_prompt,
    choose_model,
    create_context,
    create_trace,
)
from harnesses.core.tendril.resources import Resources
from harnesses.core.tendril.turn import NO_REPLY, ConversationQueue, TurnRequest, TurnResult
from llm.agent.agent_loop import AgentLoop, Reviewer
from llm.agent.short_answer import ask_shortly
from llm.agent.tool_executor import RunLimits
from llm.agent.trace import Outcome, Trace
from llm.answerers.answerers import AskedQuestion, first_answer
from llm.log_questions import QuotedAnswer
from llm.memory.room import RoomMemory
from llm.messages.errors import Busy, TimedOut, Unreachable, Unsure
from llm.messages.message import Message, quoted_lines
from llm.prompt.builder import Prompt
from llm.prompt.context_manager import CompactPromptContext
from storage.log import ChatLog

LOST = "I have lost the thread; please ask the whole question."
TOO_SMALL = (
    "My model is too small to read files; please write the lines that matter into your question."
)
BLIND = "My model cannot look at images; please describe it in words."

_log = structlog.get_logger()


class Responder:
    """Answers the requests of a tendril, with its resources and the `@tool` methods of `owner`."""

    def __init__(
        self, resources: Resources, log: ChatLog, peers: PeerService, owner: object
    ) -> None:
        self._resources, self._log, self._peers, self._owner = resources, log, peers, owner
        data = resources.configuration.config.data
        self._pseudonyms = Pseudonyms(data, resources.name, resources.clock.now)

    async def answer(
        self, request: TurnRequest, queue: ConversationQueue | None, memory: RoomMemory
    ) -> TurnResult:
        """Answer a request whose turn has come in its `queue`; without a queue only if no model is
        needed for it, else return `NO_REPLY`. Raises ModelError and StorageError."""
        resources = self._resources
        choice = await choose_model(resources, request, memory, self._pseudonyms)
        profile = choice.profile
        if profile.is_compact and request.is_unasked:
            return TurnResult("")  # a small model cannot judge whether to speak unasked
        if refusal := unreadable(request, choice):
            return TurnResult(refusal, ok=False)
        peer_tools = self._peer_tools(request)
        tools = [self._owner, *request.tools, *([peer_tools] if peer_tools else ())]
        trace = create_trace(resources, request, choice)
        prompt = await build_prompt(resources, replace(request, tools=tools), memory, choice)
        # Only now: the lines before the question are being written to the log while the steps
        # above, which do not read it, run.
        request = await request.settled(with_pasted=not profile.is_compact)
        # A model that has tools searches the log itself.
        quoted = await request.find_quotes(trace) if profile.offers != "all" else None
        window = request.log_window if request.is_by_person else None
        asked = AskedQuestion(profile, prompt.worked_out, quoted, window, request.room_view)
        began, direct = monotonic(), None
        if not request.has_more and (direct := await first_answer(request.known_reading, asked)):
            trace.add("answerer", direct.by, began, verdict=f"{direct.certainty:.2f}")
        elif queue is None:
            return NO_REPLY
        context = await create_context(resources, request, memory, choice, prompt, quoted)
        async with trace:
            if direct is not None:
                outcome, quoted = Outcome.without_model(direct.text), direct.quoted
            else:
                assert queue  # or it had returned
                run = ModelRun(resources, request, choice, prompt, context, trace, peer_tools)
                outcome, quoted = await run.answer(queue, quoted)
            trace.outcome = outcome = await self._with_quotes(request, outcome, context, quoted)
        _log.info(
            "turn.done",
            conversation=request.label,
            request=choice.options.id,
            iterations=outcome.iterations,
            forced=outcome.forced,
            prompt_tokens=outcome.usage.prompt,
            cached_tokens=outcome.usage.cached,
            completion_tokens=outcome.usage.completion,
        )
        prompts = resources.configuration.prompts
        count = partial(prompts.count_skills, resources.skills, memory.room, prompt)
        return TurnResult(
            outcome.text,
            usage=outcome.usage,
            messages=outcome.messages,
            remember=partial(context.remember, outcome.messages),
            on_delivered=partial(count, well=not outcome.forced),
            trace=trace,
            iterations=outcome.iterations,
            calls=outcome.calls,
        )

    def _peer_tools(self, request: TurnRequest) -> PeerTools | None:
        """Return the tool that asks other tendrils, or None if the request must not use it."""
        # A question to another tendril is stored in the outbox database on its way, so an
        # unrecorded one must not be passed on. Without an origin the other tendril would not know
        # what the person may read.
        if request.origin is None or request.is_unrecorded:
            return None
        return PeerTools(self._peers, replace(request.origin, words=request.asker_words))

    async def _with_quotes(
        self, request: TurnRequest, outcome: Outcome, context: Context, quoted: QuotedAnswer | None
    ) -> Outcome:
        """Return the outcome with the ids of the log lines that its text and its thoughts and calls
        repeat: so it is erased with whom it quotes."""
        shown = [*context.shown(), *outcome.shown]
        lines = quoted_lines(outcome.text, request.text, shown)
        beside = quoted_lines(outcome.text_beside(), request.text, shown)
        lines |= quoted.ids_in(outcome.text) if quoted else frozenset()
        if not lines | beside:
            return outcome
        resolve = self._log.quoted_lines
        return outcome.with_last(
            quotes=sorted(await resolve(lines)), quotes_beside=sorted(await resolve(beside))
        )


def unreadable(request: TurnRequest, choice: ModelChoice) -> str:
    """Return what to tell somebody whose image or file the chosen model cannot read, else ""."""
    if request.image and not choice.options.accepts_images:
        return BLIND
    return TOO_SMALL if request.file and choice.profile.is_compact else ""


@dataclass(frozen=True, slots=True)
class ModelRun:
    """A run of the agent loop for one request, in its context, recorded in `trace`.

    `peer_tools` is the tool that asks other tendrils, None if the request must not use it.
    """

    resources: Resources
    request: TurnRequest
    choice: ModelChoice
    prompt: Prompt
    context: Context
    trace: Trace
    peer_tools: PeerTools | None

    async def answer(
        self, queue: ConversationQueue, quoted: QuotedAnswer | None
    ) -> tuple[Outcome, QuotedAnswer | None]:
        """Return the outcome of the run, and the log lines that the answer quotes.

        If the model is away, the lines that answer the question are the answer. Raises ModelError
        if there are none, and StorageError.
        """
        began = monotonic()
        await self.context.load()
        self.trace.add("retrieval", "context", began)
        request, began = self.request, monotonic()
        try:
            outcome = await self._ask_model(queue)
        except (Unsure, Unreachable, Busy, TimedOut) as error:
            reason, text = type(error).__name__, error.sentence
            if not isinstance(error, Unsure):
                quoted = quoted or await request.find_quotes(self.trace)
                if quoted is None or not quoted.text:
                    raise
                text = quoted.text
                _log.warning("turn.quoted_only", reason=reason, error=str(error))
            model = self.choice.options.model or self.resources.configuration.agent.model
            self.trace.add("model", model, began, ok=False, verdict=reason)
            outcome = Outcome.without_model(text)
        if self.choice.profile.is_compact and quoted and outcome.text:
            evidence = quoted.evidence(request.text, outcome.text)
            outcome = outcome.with_text("\n".join([outcome.text, *evidence]))
        return outcome, quoted

    async def _ask_model(self, queue: ConversationQueue) -> Outcome:
        """Run the agent loop, with each prompt fitted to the context window of the current model;
        review its answer if the request asks for that. Raises ModelError."""
        if self.context.is_lost:
            return Outcome.without_model(LOST)
        resources, request, choice = self.resources, self.request, self.choice
        is_short = choice.profile.answers_shortly and not request.image
        if is_short and isinstance(self.context, CompactPromptContext):
            began, past = monotonic(), self.context.past
            reply = await ask_shortly(resources.client, choice.options, request.text, past)
            model = resources.client.model_of(choice.options)
            self.trace.add_model_call(model, reply, began, ())
            if request.on_text:
                await request.on_text(reply.text)
            return replace(Outcome.without_model(reply.text), usage=reply.usage, iterations=1)
        limits = RunLimits.from_settings(resources.configuration.agent, request.trigger)
        if request.origin and request.origin.budget:
            limits = limits.within(request.origin.budget)
        loop = AgentLoop(
            resources.client,
            self.prompt.toolbox,
            choice.options,
            limits,
            # No escalation for an image: the other model may not accept images.
            smart="" if request.image else await resources.catalog.smart(),
            trace=self.trace,
        )
        if self.peer_tools:
            self.peer_tools.begin(loop, self.trace.run)
        counter = resources.token_counter

        async def fit(steps: Sequence[Message]) -> list[Message]:
            # `loop.options` is read anew in each round, because an escalation changes the model.
            return await self.context.fit(
                steps, lambda messages: counter.count(loop.options, messages, loop.schemas)
            )

        outcome = await loop.run(
            fit,
            shrink=lambda: counter.shrink(loop.options),
            # A text that the reviewer may rewrite is not streamed.
            on_text=None if request.review else request.on_text,
            on_activity=request.on_activity,
            take_followups=queue.take_followups,
        )
        if request.review and outcome.text:
            outcome = await Reviewer(resources.client, loop.options).review(request.text, outcome)
        return outcome

"""Answers one request of a tendril: with the log, with skills, and with the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import structlog

from harnesses.core.tendril.conversation_queue import ConversationQueue
from harnesses.core.tendril.tracing import trace_of
from harnesses.core.tendril.turn_request import TurnRequest
from harnesses.core.tendril.turn_result import TurnResult
from llm.agent.agent_loop import AgentLoop, LoopCallbacks
from llm.agent.direct_answers import direct_answer, quoted_answer
from llm.agent.limits import UNASKED, RunLimits
from llm.agent.outcome import Outcome
from llm.agent.reviewer import Reviewer
from llm.agent.trace import Trace
from llm.client.client import AgentClient, RequestOptions, TokenCounter, TokenCountResult
from llm.client.model_catalog import ModelCatalog
from llm.client.settings import AgentSettings
from llm.client.token_usage import ANSWER
from llm.log_questions.answers import QuotedAnswer
from llm.memory.room import RoomMemory
from llm.messages.errors import Busy, ContextTooLong, TimedOut, Unreachable
from llm.messages.message import Message
from llm.messages.sections import PromptSection
from llm.prompt.budget import PromptBudget
from llm.prompt.builder import Prompt, PromptBuilder, PromptRequest
from llm.prompt.compact_context import CompactPromptContext
from llm.prompt.context_manager import Conversation, PromptContext, PromptInput
from llm.prompt.log_window import LogWindow
from llm.prompt.persona import Persona
from llm.prompt.question_cues import is_about_time
from llm.skills.hint import HintContext
from storage.memory.conversations import Conversations
from storage.memory.taught_skills import SkillTable
from storage.runs.runs import Runs
from terrarium.clock import Clock

_log = structlog.get_logger()


class Responder:
    """Answers the requests of a tendril, which is asked for nothing but its `@tool` methods."""

    def __init__(
        self,
        *,
        tendril: object,
        name: str,
        client: AgentClient,
        catalog: ModelCatalog,
        prompts: PromptBuilder,
        skills: SkillTable,
        conversations: Conversations,
        runs: Runs,
        clock: Clock,
        settings: Callable[[], AgentSettings],
    ) -> None:
        self._tendril = tendril
        self._name = name
        self._client = client
        self._catalog = catalog
        self._prompts = prompts
        self._skills = skills
        self._conversations = conversations
        self._runs = runs
        self._clock = clock
        self._settings = settings
        self._token_counter = TokenCounter(client)

    async def answer(
        self, request: TurnRequest, queue: ConversationQueue[TurnResult], memory: RoomMemory
    ) -> TurnResult:
        """Answer a question that has its turn: without the model where that settles it."""
        persona = self._prompts.personas.choose(request.persona)
        options = await self._call(request, persona, memory.room)
        budget = await self._budget(request, options)
        options = self._shorten(options, request.text, budget)
        if budget.is_small and request.profile in UNASKED:
            return TurnResult("")  # it cannot judge whether there is something worth saying
        prompt = await self._prompts.build(
            self._skills, self._asking(request, persona, memory), budget
        )
        log_window = await request.log_window.resolved_view() if request.log_window else None
        quoted = (
            await quoted_answer(log_window, request.text)
            if log_window and request.is_by_person
            else None
        )
        context = await self._context(request, log_window, prompt, quoted, budget, memory)
        trace = trace_of(request, options, self._settings(), self._runs, self._clock, queue.spawn)
        async with trace:
            direct = direct_answer(prompt.worked_out, quoted, budget)
            if direct is not None:
                outcome = Outcome.without_model(direct)
            else:
                await context.load()
                turn = await self._turn(request, options, prompt, queue, trace)
                outcome = await self._run_turn(turn, context, quoted)
                if request.review and outcome.text:
                    reviewer = Reviewer(self._client, turn.options)
                    outcome = await reviewer.review(request.text, outcome)
                if budget.is_small and quoted and quoted.is_sure:
                    outcome = outcome.ending_with(quoted.lines[:1])
            trace.outcome = outcome
        _log_outcome(options, outcome)
        used = partial(
            self._prompts.count_skills, self._skills, memory.room, prompt, well=not outcome.forced
        )
        return TurnResult.from_outcome(outcome, partial(context.remember, outcome.messages), used)

    async def _call(self, request: TurnRequest, persona: Persona, room: str) -> RequestOptions:
        """What goes with every request of the turn; the model is the wanted one or the persona's,
        if the server has it."""
        named = self._catalog.resolve
        return RequestOptions(
            f"{self._name}/{request.conversation}",
            request.priority,
            await named(request.model) or await named(persona.model),
            purpose=ANSWER if request.is_by_person else request.profile,
            room=room,
            temperature=persona.temperature,
            max_tokens=persona.max_tokens,
        )

    async def _budget(self, request: TurnRequest, options: RequestOptions) -> PromptBudget:
        """How large the prompt may be. What is written for a job needs all its material."""
        budget = PromptBudget.from_card(await self._catalog.card(options.model))
        if request.profile == "job":
            return replace(budget, tokens=None, is_small=False, is_tiny=False)
        return budget

    def _shorten(
        self, options: RequestOptions, question: str, budget: PromptBudget
    ) -> RequestOptions:
        """The call as a small model is best asked: for its likeliest words, and few of them."""
        if not budget.is_small:
            return options
        is_set = "temperature" in self._settings().model_fields_set
        temperature = options.temperature if options.temperature is not None or is_set else 0.0
        return replace(options, temperature=temperature, sentences=budget.sentences(question))

    def _asking(self, request: TurnRequest, persona: Persona, memory: RoomMemory) -> PromptRequest:
        """The request as prompts see it, with the tools that the model may be offered."""
        return PromptRequest(
            request.text,
            memory.room,
            persona,
            request.values,
            (self._tendril, *request.tools, *memory.tools(request.keeps)),
            request.rights,
            request.wants_status,
            HintContext(self._clock.now(), self._settings().zone),
        )

    async def _context(
        self,
        request: TurnRequest,
        log_window: LogWindow | None,
        prompt: Prompt,
        quoted: QuotedAnswer | None,
        budget: PromptBudget,
        memory: RoomMemory,
    ) -> PromptContext | CompactPromptContext:
        """The prompt's layout: for a small model the compact one."""
        conversation = Conversation(
            self._conversations, request.conversation, memory.room, memory.person
        )
        given = PromptInput(
            conversation,
            prompt.system,
            request.question(),
            log_window,
            quoted.events if quoted else (),
        )
        if budget.is_small:
            return CompactPromptContext(
                given,
                notes=prompt.hints,
                is_unsure=quoted is not None and not quoted.is_sure,
                budget=budget,
                now=self._clock.now,
            )
        stable, own = await memory.sections(request.text)
        return PromptContext(
            given,
            stable=stable,
            beside=(*own, *prompt.beside, *self._clock_section(request.text)),
            budget=budget.tokens,
            now=self._clock.now,
        )

    async def _turn(
        self,
        request: TurnRequest,
        options: RequestOptions,
        prompt: Prompt,
        queue: ConversationQueue[TurnResult],
        trace: Trace,
    ) -> AgentLoop:
        """The run of the model that answers."""
        return AgentLoop(
            self._client,
            prompt.toolbox,
            options,
            RunLimits.from_settings(self._settings(), request.profile),
            callbacks=LoopCallbacks(
                None if request.review else request.on_text, queue.take_followups
            ),
            smart=await self._catalog.smart(),
            trace=trace,
        )

    async def _run_turn(
        self,
        turn: AgentLoop,
        context: PromptContext | CompactPromptContext,
        quoted: QuotedAnswer | None,
    ) -> Outcome:
        """Run the turn. While the model is away the lines that answer the question are the answer.
        Raises ModelError."""
        reserve = turn.options.max_tokens or self._settings().max_tokens

        async def fit(steps: Sequence[Message]) -> list[Message]:
            def count(messages: Sequence[Message]) -> Awaitable[TokenCountResult]:
                return self._token_counter.count(turn.options, messages, turn.schemas, reserve)

            return await context.fit(steps, count, reserve)

        try:
            return await turn.run(fit)
        except ContextTooLong:
            self._token_counter.forget(turn.options)
            raise
        except (Unreachable, Busy, TimedOut) as error:
            if quoted is None or not quoted.text:
                raise
            _log.warning("turn.quoted_only", reason=type(error).__name__, error=str(error))
            return Outcome.without_model(quoted.text)

    def _clock_section(self, question: str) -> list[PromptSection]:
        """The time of day of whoever asks, where the question is about time: beside each question
        it would have the engine read the one before again."""
        if not is_about_time(question):
            return []
        local = self._clock.now().astimezone(self._settings().zone)
        return [PromptSection("now", f"{local:%A %Y-%m-%d %H:%M %Z}", 60)]


def _log_outcome(options: RequestOptions, outcome: Outcome) -> None:
    _log.info(
        "turn.done",
        conversation=options.session,
        request=options.id,
        iterations=outcome.iterations,
        forced=outcome.forced,
        prompt_tokens=outcome.usage.prompt,
        cached_tokens=outcome.usage.cached,
        completion_tokens=outcome.usage.completion,
    )

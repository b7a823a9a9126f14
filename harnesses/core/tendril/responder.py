"""Answers one request of a tendril: with the log, with skills, and with the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import structlog

from harnesses.core.tendril.answer import Answer
from harnesses.core.tendril.lane import Lane
from harnesses.core.tendril.tracing import trace_of
from harnesses.core.tendril.turn_request import TurnRequest
from llm.agent.direct_answers import direct_answer, quoted_answer
from llm.agent.limits import UNASKED
from llm.agent.reviewer import Reviewer
from llm.agent.trace import Trace
from llm.agent.turn import Turn
from llm.agent.turn_result import Outcome
from llm.client.client import AgentClient, Call, Count
from llm.client.model_catalog import Models
from llm.client.settings import AgentSettings
from llm.client.token_counter import Meter
from llm.client.token_usage import ANSWER
from llm.log_questions.answers import QuotedAnswer
from llm.memory.memory import RoomMemory
from llm.messages.errors import Busy, ContextTooLong, TimedOut, Unreachable
from llm.messages.message import Message
from llm.messages.sections import Section
from llm.prompt.budget import PromptBudget
from llm.prompt.builder import Asking, Prompt, Prompts
from llm.prompt.compact_context import CompactContext
from llm.prompt.context_manager import Context, Conversation
from llm.prompt.log_window import LogView
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
        models: Models,
        prompts: Prompts,
        skills: SkillTable,
        conversations: Conversations,
        runs: Runs,
        clock: Clock,
        settings: Callable[[], AgentSettings],
    ) -> None:
        self._tendril = tendril
        self._name = name
        self._client = client
        self._models = models
        self._prompts = prompts
        self._skills = skills
        self._conversations = conversations
        self._runs = runs
        self._clock = clock
        self._settings = settings
        self._meter = Meter(client)

    async def answer(self, request: TurnRequest, lane: Lane[Answer], memory: RoomMemory) -> Answer:
        """Answer a question that has its turn: without the model where that settles it."""
        persona = self._prompts.personas.of(request.persona)
        call = await self._call(request, persona, memory.room)
        budget = await self._budget(request, call)
        call = self._shortened(call, request.text, budget)
        if budget.is_small and request.profile in UNASKED:
            return Answer("")  # it cannot judge whether there is something worth saying
        prompt = await self._prompts.of(
            self._skills, self._asking(request, persona, memory), budget
        )
        view = await request.view.settled() if request.view else None
        quoted = await quoted_answer(view, request.text) if view and request.is_by_person else None
        context = await self._context(request, view, prompt, quoted, budget, memory)
        trace = trace_of(request, call, self._settings(), self._runs, self._clock, lane.beside)
        async with trace:
            direct = direct_answer(prompt.worked_out, quoted, budget)
            if direct is not None:
                outcome = Outcome.without_model(direct)
            else:
                await context.load()
                turn = await self._turn(request, call, prompt, lane, trace)
                outcome = await self._asked(turn, context, quoted)
                outcome = await self._reviewed(request, turn.call, outcome)
                if budget.is_small and quoted and quoted.is_sure:
                    outcome = outcome.ending_with(quoted.lines[:1])
            trace.outcome = outcome
        _log_outcome(call, outcome)
        used = partial(
            self._prompts.used, self._skills, memory.room, prompt, well=not outcome.forced
        )
        return Answer.of(outcome, partial(context.remember, outcome.messages), used)

    async def _call(self, request: TurnRequest, persona: Persona, room: str) -> Call:
        """What goes with every request of the turn; the model is the wanted one or the persona's,
        if the server has it."""
        named = self._models.named
        return Call(
            f"{self._name}/{request.conversation}",
            request.priority,
            await named(request.model) or await named(persona.model),
            purpose=ANSWER if request.is_by_person else request.profile,
            room=room,
            temperature=persona.temperature,
            max_tokens=persona.max_tokens,
        )

    async def _budget(self, request: TurnRequest, call: Call) -> PromptBudget:
        """How large the prompt may be. What is written for a job needs all its material."""
        budget = PromptBudget.of(await self._models.card(call.model))
        if request.profile == "job":
            return replace(budget, tokens=None, is_small=False, is_tiny=False)
        return budget

    def _shortened(self, call: Call, question: str, budget: PromptBudget) -> Call:
        """The call as a small model is best asked: for its likeliest words, and few of them."""
        if not budget.is_small:
            return call
        is_set = "temperature" in self._settings().model_fields_set
        temperature = call.temperature if call.temperature is not None or is_set else 0.0
        return replace(call, temperature=temperature, sentences=budget.sentences(question))

    def _asking(self, request: TurnRequest, persona: Persona, memory: RoomMemory) -> Asking:
        """The request as prompts see it, with the tools that the model may be offered."""
        return Asking(
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
        view: LogView | None,
        prompt: Prompt,
        quoted: QuotedAnswer | None,
        budget: PromptBudget,
        memory: RoomMemory,
    ) -> Context | CompactContext:
        """The prompt's layout: for a small model the compact one."""
        conversation = Conversation(
            self._conversations, request.conversation, memory.room, memory.person
        )
        found = quoted.events if quoted else ()
        if budget.is_small:
            return CompactContext(
                conversation,
                prompt.system,
                request.question(),
                view,
                found,
                notes=prompt.hints,
                is_unsure=quoted is not None and not quoted.is_sure,
                budget=budget,
                now=self._clock.now,
            )
        stable, own = await memory.sections(request.text)
        return Context(
            conversation,
            prompt.system,
            request.question(),
            view,
            found=found,
            stable=stable,
            beside=(*own, *prompt.beside, *self._clock_section(request.text)),
            budget=budget.tokens,
            now=self._clock.now,
        )

    async def _turn(
        self, request: TurnRequest, call: Call, prompt: Prompt, lane: Lane[Answer], trace: Trace
    ) -> Turn:
        """The run of the model that answers."""
        return Turn(
            self._client,
            self._settings(),
            prompt.toolbox,
            call,
            None if self._review_over(request) is not None else request.on_text,
            lane.joining,
            profile=request.profile,
            smart=await self._models.smart(),
            trace=trace,
        )

    async def _asked(
        self, turn: Turn, context: Context | CompactContext, quoted: QuotedAnswer | None
    ) -> Outcome:
        """Run the turn. While the model is away the lines that answer the question are the answer.
        Raises ModelError."""
        reserve = turn.call.max_tokens or self._settings().max_tokens

        async def fit(steps: Sequence[Message]) -> list[Message]:
            def count(messages: Sequence[Message]) -> Awaitable[Count]:
                return self._meter.count(turn.call, messages, turn.schemas, reserve)

            return await context.fit(steps, count, reserve)

        try:
            return await turn.run(fit)
        except ContextTooLong:
            self._meter.forget(turn.call)
            raise
        except (Unreachable, Busy, TimedOut) as error:
            if quoted is None or not quoted.text:
                raise
            _log.warning("turn.quoted_only", reason=type(error).__name__, error=str(error))
            return Outcome.without_model(quoted.text)

    def _review_over(self, request: TurnRequest) -> int | None:
        """The characters from which on an answer gets a second look; None: none does."""
        return 0 if request.review else self._settings().review_over or None

    async def _reviewed(self, request: TurnRequest, call: Call, outcome: Outcome) -> Outcome:
        """The outcome, or a better one if it is long enough for a second look."""
        over = self._review_over(request)
        if over is None or len(outcome.text) <= over:
            return outcome
        return await Reviewer(self._client, call).reviewed(request.text, outcome)

    def _clock_section(self, question: str) -> list[Section]:
        """The time of day of whoever asks, where the question is about time: beside each question
        it would have the engine read the one before again."""
        if not is_about_time(question):
            return []
        local = self._clock.now().astimezone(self._settings().zone)
        return [Section("now", f"{local:%A %Y-%m-%d %H:%M %Z}", 60)]


def _log_outcome(call: Call, outcome: Outcome) -> None:
    _log.info(
        "turn.done",
        conversation=call.session,
        request=call.id,
        iterations=outcome.iterations,
        forced=outcome.forced,
        prompt_tokens=outcome.usage.prompt,
        cached_tokens=outcome.usage.cached,
        completion_tokens=outcome.usage.completion,
    )

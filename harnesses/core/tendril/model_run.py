"""The run of the model that answers a turn request."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

import structlog

from harnesses.core.services.peers import PeerTools
from harnesses.core.tendril.preparation import Context
from harnesses.core.tendril.resources import TendrilResources
from harnesses.core.tendril.turn import ConversationQueue, TurnRequest
from llm.agent.agent_loop import AgentLoop, LoopCallbacks
from llm.agent.outcome import Outcome
from llm.agent.reviewer import Reviewer
from llm.agent.trace import Trace, now
from llm.client.client import RequestOptions, TokenCountResult
from llm.log_questions.answers import QuotedAnswer
from llm.messages.errors import Busy, ContextTooLong, TimedOut, Unreachable
from llm.messages.message import Message
from llm.tools.toolbox import Toolbox

_log = structlog.get_logger()


class ModelRun:
    """Has the model answer a request within its loaded context, with tools, traced by `trace`;
    `asking` is the tool that asks other tendrils, if it may."""

    def __init__(
        self,
        tendril: TendrilResources,
        request: TurnRequest,
        context: Context,
        trace: Trace,
        asking: PeerTools | None = None,
    ) -> None:
        self._tendril = tendril
        self._request = request
        self._context = context
        self._trace = trace
        self._asking = asking

    async def answer(
        self,
        options: RequestOptions,
        toolbox: Toolbox,
        queue: ConversationQueue,
        quoted: QuotedAnswer | None,
    ) -> Outcome:
        """Run the agent loop, and review the answer where the request wants that.

        While the model is away, the quoted lines that answer the question are the answer. Raises
        ModelError.
        """
        tendril, request = self._tendril, self._request
        loop = AgentLoop(
            tendril.client,
            toolbox,
            options,
            request.limits(tendril.agent),
            # A text that may be rewritten is not shown before it is final.
            callbacks=LoopCallbacks(
                None if request.review else request.on_text, queue.take_followups
            ),
            # The other model may not see.
            smart="" if request.image else await tendril.catalog.smart(),
            trace=self._trace,
        )
        if self._asking:
            self._asking.begin(loop, self._trace.run)
        began = now()
        try:
            outcome = await self._run(loop)
        except (Unreachable, Busy, TimedOut) as error:
            if quoted is None or not quoted.text:
                raise
            reason = type(error).__name__
            _log.warning("turn.quoted_only", reason=reason, error=str(error))
            self._trace.add_failed_request(options.model or tendril.agent.model, reason, began)
            return Outcome.without_model(quoted.text)
        return await self._review(loop.options, outcome)

    async def _run(self, loop: AgentLoop) -> Outcome:
        """Run the loop, each prompt fitted to the window of the model that it asks just then."""
        counter = self._tendril.token_counter
        image = self._request.image
        reserve = loop.options.max_tokens or self._tendril.agent.max_tokens
        room = reserve + (image.tokens if image else 0)

        async def fit(steps: Sequence[Message]) -> list[Message]:
            def count(messages: Sequence[Message]) -> Awaitable[TokenCountResult]:
                return counter.count(loop.options, messages, loop.schemas, room)

            prompt = await self._context.fit(steps, count, room)
            if image:  # after the counting, which is of words
                question = len(prompt) - len(steps) - 1
                prompt[question] = prompt[question] | {"image": image}
            return prompt

        try:
            return await loop.run(fit)
        except ContextTooLong:
            counter.forget(loop.options)
            raise

    async def _review(self, options: RequestOptions, outcome: Outcome) -> Outcome:
        if not self._request.review or not outcome.text:
            return outcome
        reviewer = Reviewer(self._tendril.client, options)
        return await reviewer.review(self._request.text, outcome)

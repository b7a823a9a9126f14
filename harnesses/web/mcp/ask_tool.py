"""The tool by which MCP clients ask our model."""

from __future__ import annotations

import re
import secrets
from hashlib import sha256
from typing import Annotated

from pydantic import BaseModel, Field

from harnesses.core.rate_limit import TokenBuckets
from harnesses.web.app_state import TOO_FAST
from harnesses.web.chat_service import ChatService
from llm.tools.toolbox import ToolError, tool
from storage.chat_log.event import Scope

_CONVERSATION = re.compile(r"[0-9a-f]{32}")
_TIMEOUT = 600.0  # seconds; the run behind the answer has its own limit


class ConversationAnswer(BaseModel):
    """The answer of the model, and the id of the conversation, to continue it."""

    answer: str
    conversation: str


class AskTool:
    """The owner of the tool `ask`, by which a client asks `chat` within `scope`.

    `questions` limits the rate per client address.
    """

    def __init__(
        self, chat: ChatService, scope: Scope, address: str, questions: TokenBuckets
    ) -> None:
        self._chat = chat
        self._scope = scope
        self._address = address
        self._questions = questions

    @tool(mcp=True, timeout=_TIMEOUT)
    async def ask(
        self,
        question: Annotated[str, Field(min_length=1, max_length=4000)],
        conversation: Annotated[
            str,
            Field(
                max_length=32,
                description="`conversation` of an earlier answer, to continue it",
            ),
        ] = "",
    ) -> ConversationAnswer:
        """Ask Terrarium, a language model that can look into the chat log. It takes a while."""
        if conversation and not _CONVERSATION.fullmatch(conversation):
            raise ToolError("conversation: leave it out, or pass that of an earlier answer")
        if not self._questions.try_acquire(self._address):
            raise ToolError(TOO_FAST)
        conversation = conversation or secrets.token_hex(16)
        # The name depends on the scope: a client with another one that knows the id gets a
        # conversation of its own, and learns nothing from answers to one that may read more.
        places = self._scope.places
        scope = "all" if places is None else ",".join(sorted(map(str, places)))
        name = f"mcp/{sha256(f'{conversation} {scope}'.encode()).hexdigest()[:32]}"

        async def ignore(_text: str) -> None:
            """Discard a piece of the answer: the result of an MCP tool is not streamed."""

        result = await self._chat.ask(name, question, self._scope, self._address, ignore)
        if not result.ok:
            raise ToolError(result.text or "there is no answer: the question was stopped")
        return ConversationAnswer(answer=result.text, conversation=conversation)

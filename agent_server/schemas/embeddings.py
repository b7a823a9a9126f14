"""The body of POST /v1/embeddings.

Source: https://platform.openai.com/docs/api-reference/embeddings
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from agent_server.schemas.chat import INT32, StrictRequest
from agent_server.schemas.token_inputs import Input

_FEWEST_TOKENS = 8  # some stand around each text: its type, beginning and end


class EmbeddingsRequest(StrictRequest):
    """The body of POST /v1/embeddings.

    Two fields are extensions: `input_type` for e5 models, which embed questions and passages
    differently, and `truncate_prompt_tokens`, as of vLLM: of a longer text so many tokens from its
    beginning are embedded, and it is not refused.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    hints = frozenset(["user"])

    input: Input
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1, le=INT32)
    input_type: Literal["query", "passage"] | None = None
    truncate_prompt_tokens: int | None = Field(None, ge=_FEWEST_TOKENS, le=INT32)

    def as_wire(self) -> dict[str, Any]:
        """Return the request body for an engine."""
        return self.model_dump(exclude_none=True, exclude={*(self.model_extra or {})})

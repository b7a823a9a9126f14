"""The same model without us: questions to the API, with nothing or one sentence before them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import httpx2

LAYOUTS: Mapping[str, str] = {
    "question alone": "",
    "longer sentence": "You are Terra, a friendly bot. You answer in one or two short sentences of"
    " plain text.",
    "shorter sentence": "You are Terra, a helpful bot. Answer in one short sentence.",
}
"""What the system message says, "" where there is none."""

_MOST = 256  # tokens of an answer, as the tendril has it
_PATIENCE = 300.0  # seconds


@dataclass(frozen=True, slots=True)
class BareAnswer:
    """What the model said, and after how many seconds."""

    text: str
    seconds: float
    prompt: int


async def bare_answers(http: httpx2.AsyncClient, question: str) -> Mapping[str, BareAnswer]:
    """The answer in each layout."""
    return {name: await _answer(http, system, question) for name, system in LAYOUTS.items()}


async def _answer(http: httpx2.AsyncClient, system: str, question: str) -> BareAnswer:
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": question})
    body = {"model": "terra", "messages": messages, "temperature": 0, "max_tokens": _MOST}
    began = time.perf_counter()
    response = await http.post("/v1/chat/completions", json=body, timeout=_PATIENCE)
    response.raise_for_status()
    took = time.perf_counter() - began
    said = response.json()
    text = said["choices"][0]["message"]["content"] or ""
    return BareAnswer(text.strip(), took, said["usage"]["prompt_tokens"])

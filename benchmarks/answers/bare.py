"""The baseline: the same model asked over the API, with no or a one-sentence system message."""

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
"""The system message by layout; "" for none."""

_MOST = 256  # tokens of an answer, the tendril's limit
_PATIENCE = 300.0  # seconds


@dataclass(frozen=True, slots=True)
class BareAnswer:
    """An answer of the model, with the seconds it took and the tokens of its prompt."""

    text: str
    seconds: float
    prompt: int


async def bare_answers(http: httpx2.AsyncClient, question: str) -> Mapping[str, BareAnswer]:
    """Ask a question in each layout and return the answers by layout."""
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

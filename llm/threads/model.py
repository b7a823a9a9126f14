"""The fitted weights and word counts that come along, and where they come from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from llm.threads.bins import Weights


@dataclass(frozen=True, slots=True)
class ThreadModel:
    """What `benchmarks/context_fit.py` has learned from #ubuntu logs with hand-made reply links
    (Kummerfeld et al., ACL 2019): weights of the link and ranking models, and in how many of
    `lines` lines each frequent word is."""

    links: Weights
    ranking: Weights
    words: Mapping[str, int]
    lines: int


@cache
def load_model() -> ThreadModel:
    """The model that comes along."""
    saved = json.loads((files("llm.threads") / "model.json").read_text(encoding="utf-8"))
    return ThreadModel(saved["links"], saved["ranking"], saved["words"], saved["lines"])

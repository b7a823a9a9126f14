"""The embedded engine's process: llama.cpp's own HTTP server on a free loopback port.

Run as `python -m agent_server.engines.llama_child`. One JSON line on standard input says what to
load (a `EngineSpec`); the answer is one JSON line on standard output with the address. The process
ends when standard input closes, so it never outlives its supervisor.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import Any

from agent_server.model_catalogue.machine import engine_gpus

CACHE_MIB = 1024
"""Host memory for prompts that left their slot: without it every return of a conversation is
computed again (measured: 19 % against 87 % of a prompt from the cache)."""

SIMILARITY = 0.01
"""The least share of a prompt that a slot has to begin with to be taken before the one that waited
longest. A prompt whose oldest lines were left out has only its system message in common with what
is in its slot, and yet nearly all the rest of it is there, and nowhere else."""

REUSE = 64
"""Shortest run of tokens, after the common beginning, that is shifted and kept."""

BATCH = 128
"""Tokens of prompts that are computed in one go, which nothing interrupts: another request waits
for its end, and one that is cancelled goes on until then. More are hardly faster on a processor;
with few, long prompts take far longer."""

WAITING = ("GOMP_SPINCOUNT", "10000")
"""How often a thread that waits for another looks before it gives its processor away. Never to look
makes answers slow on a quiet machine; to look for as long as OpenMP does by itself takes
most of its time where other programs want the processors too."""

CANNOT_LOAD = 65
"""Exit status (EX_DATAERR of sysexits.h) where llama.cpp does not take the model's file."""

REPEAT_PENALTY = 1.1
"""Unless a request says otherwise: small models go round in circles without it."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The model and its limits. `context` is tokens per request; `key` is the bearer key it wants;
    with `thinks` a model that can think before it answers does."""

    path: str
    name: str
    context: int
    slots: int
    threads: int
    key: str
    thinks: bool = False

    def as_line(self) -> bytes:
        """Return the line that the child reads."""
        return json.dumps(asdict(self)).encode() + b"\n"


def parameters(spec: EngineSpec) -> Any:
    """Translate `spec` for llama.cpp, whose `n_ctx` is divided among the slots."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = spec.path
    params.model_alias = {spec.name}
    params.n_ctx = spec.context * spec.slots
    params.n_parallel = spec.slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = spec.threads
    if not engine_gpus():  # with one, all layers that fit into its memory go there by themselves
        params.n_batch = params.n_ubatch = BATCH
    # The word that chat templates of models with and without thoughts go by.
    params.default_template_kwargs = {"enable_thinking": "true" if spec.thinks else "false"}
    params.cache_ram_mib = CACHE_MIB
    params.n_cache_reuse = REUSE
    params.slot_prompt_similarity = SIMILARITY
    params.sampling.penalty_repeat = REPEAT_PENALTY
    params.endpoint_metrics = params.endpoint_props = params.endpoint_slots = True
    params.ui = False
    params.verbosity = 0
    params.port = 0
    params.api_keys = [spec.key]
    params.cors_origins = "http://127.0.0.1"
    return params


def main() -> None:
    """Load, tell the address, and serve until standard input closes."""
    os.environ.setdefault(*WAITING)
    try:
        import xllamacpp
    except ImportError as error:
        # Its libraries are the system's: a slim container may lack OpenMP, say.
        sys.exit(
            f"the embedded engine cannot start: {error}; on Debian and Ubuntu: apt install libgomp1"
        )

    spec = EngineSpec(**json.loads(sys.stdin.readline()))
    try:
        server = xllamacpp.Server(parameters(spec))
    except RuntimeError as error:
        sys.stderr.write(f"the engine cannot load {spec.path}: {error}\n")
        sys.exit(CANNOT_LOAD)
    gpus = [asdict(gpu) for gpu in engine_gpus()]
    sys.stdout.write(json.dumps({"url": server.listening_address, "gpus": gpus}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    # A generation may be under way in llama.cpp's threads: leave without waiting for it.
    os._exit(0)


if __name__ == "__main__":
    main()

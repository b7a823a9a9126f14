"""The embedded engine's process: llama.cpp's own HTTP server on a free loopback port.

Run as `python -m agent_server.engines.llama_child`. One JSON line on standard input (an
`EngineSpec`) says what to load; once that is done, one JSON line on standard output has the address
and the GPUs. The process ends when standard input closes, so it never outlives its supervisor.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import Any

from agent_server.model_catalogue.machine import engine_gpus

CACHE_MIB = 1024
"""Host memory in MiB for prompts evicted from their slot. Without it each conversation that resumes
is computed from the start (measured: 19 % instead of 87 % of a prompt from the cache)."""

SLOT_SIMILARITY = 0.01
"""Minimum common prefix, as a share of the prompt, for a slot to be preferred to the least recently
used one. A prompt whose oldest lines were left out shares only the system message as a prefix with
its slot; yet nearly all the rest of it is cached there, and nowhere else."""

CACHE_REUSE = 64
"""Minimum run of tokens, after the common prefix, that is shifted and reused."""

BATCH_TOKENS = 128
"""Prompt tokens per batch on a CPU. A batch cannot be interrupted: other requests wait for its end,
and a cancelled one goes on until then. Larger batches are hardly faster, and with small ones long
prompts take far longer (71 instead of 155 tokens/s with 32)."""

SPIN_COUNT = ("GOMP_SPINCOUNT", "10000")
"""Polls of an idle OpenMP thread before it gives up its CPU. Without polling, answers are slow on a
quiet machine (33 instead of 73 tokens/s); OpenMP's own default takes nearly twice as long where
other programs compete for the CPUs."""

CANNOT_LOAD = 65
"""Exit status (EX_DATAERR of sysexits.h) when llama.cpp rejects the model's file."""

REPEAT_PENALTY = 1.1
"""Used unless a request sets another: small models loop without one."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The model to load, and its limits.

    `context` is in tokens per request and `key` the bearer key that requests must have, of which
    `EmbeddedEngine` makes one for each child. `thinks` turns on the reasoning of models where it is
    optional.
    """

    path: str
    name: str
    context: int
    slots: int
    threads: int
    key: str = ""
    thinks: bool = False

    def as_line(self) -> bytes:
        """Return the JSON line for the child's standard input."""
        return json.dumps(asdict(self)).encode() + b"\n"


def parameters(spec: EngineSpec) -> Any:
    """Translate `spec` to llama.cpp's parameters; its `n_ctx` is the sum over all slots."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = spec.path
    params.model_alias = {spec.name}
    params.n_ctx = spec.context * spec.slots
    params.n_parallel = spec.slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = spec.threads
    if not engine_gpus():  # with one, llama.cpp offloads all layers that fit
        params.n_batch = params.n_ubatch = BATCH_TOKENS
    # The variable by which chat templates turn a model's reasoning on and off.
    params.default_template_kwargs = {"enable_thinking": "true" if spec.thinks else "false"}
    params.cache_ram_mib = CACHE_MIB
    params.n_cache_reuse = CACHE_REUSE
    params.slot_prompt_similarity = SLOT_SIMILARITY
    params.sampling.penalty_repeat = REPEAT_PENALTY
    params.endpoint_metrics = params.endpoint_props = params.endpoint_slots = True
    params.ui = False
    params.verbosity = 0
    params.port = 0  # any free one
    params.api_keys = [spec.key]
    # Web pages must not read what the engine answers.
    params.cors_origins = "http://127.0.0.1"
    return params


def main() -> None:
    """Load the model, print the address, and serve until standard input closes."""
    os.environ.setdefault(*SPIN_COUNT)
    try:
        import xllamacpp
    except ImportError as error:
        # It needs libraries of the system: a slim container may lack OpenMP.
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
    # llama.cpp's threads may be generating: exit without waiting for them.
    os._exit(0)


if __name__ == "__main__":
    main()

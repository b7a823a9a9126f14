"""llama.cpp with its default prefix cache: only a common prefix of two prompts is reused.

    python -m benchmarks.plain_engine SPEC

SPEC is an `EngineSpec` as JSON. Prints its URL and serves until standard input closes.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from agent_server.engines.llama_child import SPIN_COUNT, EngineSpec, parameters
from agent_server.model_files import store as model_store
from agent_server.settings.models import ModelSettings
from terrarium.config import Config

_CONTEXT, _SLOTS = 8_192, 2  # the embedded engine's defaults
_SIMILARITY = 0.1  # llama.cpp's default


@asynccontextmanager
async def plain_engine() -> AsyncIterator[Mapping[str, str]]:
    """Run such an engine with the small default model; yield the settings of a server that uses
    it as its upstream."""
    settings = Config({}, None, Path("data")).section(ModelSettings)
    model_store.ensure(settings)
    path, key = str(model_store.model_file(settings)), secrets.token_urlsafe()
    spec = EngineSpec(path, "terra", _CONTEXT, _SLOTS, settings.threads, key)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.plain_engine", spec.as_line(), stdin=PIPE, stdout=PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            if line.startswith(b"http://"):
                url = line.decode().strip()
                yield {"MODEL_UPSTREAM": url, "MODEL_UPSTREAM_KEY": key, "MODEL_TOOLS": "forced"}
                break
    finally:
        process.stdin.close()
        await process.wait()


def main() -> None:
    """Load the model of the spec on the command line and serve."""
    os.environ.setdefault(*SPIN_COUNT)  # OpenMP reads it when xllamacpp is imported
    import xllamacpp

    chosen = parameters(EngineSpec(**json.loads(sys.argv[1])))
    chosen.n_cache_reuse = 0  # no shifting of cached chunks whose position has changed
    chosen.slot_prompt_similarity = _SIMILARITY
    server = xllamacpp.Server(chosen)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()

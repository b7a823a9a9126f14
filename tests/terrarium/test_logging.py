"""The log lines of several processes that share one pipe, as those of `terrarium up` do."""

from __future__ import annotations

import asyncio
import os
import re
import sys

import pytest

from tests.kit.patience import PATIENCE

PROCESSES, LINES = 4, 400
_WRITER = """
import sys
import structlog
from terrarium.logging import configure
configure(sys.argv[1])
log = structlog.get_logger()
for number in range(int(sys.argv[2])):
    log.info("line.written", number=number, text="x" * 60)
"""
_LINE = re.compile(r"\S+ \[info\] line\.written number=(\d+) text=x{60} process=(p\d)")


@pytest.mark.process
async def test_no_line_runs_into_another_though_nothing_is_buffered() -> None:
    reader, writer = os.pipe()
    writers = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _WRITER, f"p{number}", str(LINES)),
            stderr=writer,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        for number in range(PROCESSES)
    ]
    os.close(writer)
    text = await asyncio.wait_for(asyncio.to_thread(_read, reader), PATIENCE)
    for process in writers:
        assert await process.wait() == 0
    whole = [_LINE.fullmatch(line) for line in text.splitlines()]
    assert None not in whole
    written = {(match[2], int(match[1])) for match in whole if match}
    assert len(written) == PROCESSES * LINES


def _read(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8") as pipe:
        return pipe.read()

"""Waiting until a worker has done all that there is to do."""

from __future__ import annotations

from llm.scheduling.worker import Worker
from storage.queues.jobs import Jobs


async def settled(worker: Worker, jobs: Jobs) -> None:
    """Return when every job is over, but for those that are due later."""
    worker.idle.clear()
    jobs.changed.set()  # it looks once more
    await worker.idle.wait()

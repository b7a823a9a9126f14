"""Waiting for a worker to finish all due jobs."""

from __future__ import annotations

from llm.scheduling.worker import Worker
from storage.queues.jobs import Jobs


async def settled(worker: Worker, jobs: Jobs) -> None:
    """Wait until all jobs are finished, except those that are due later."""
    worker.idle.clear()
    jobs.changed.set()  # wakes the worker, which sets `idle` if it finds nothing due
    await worker.idle.wait()

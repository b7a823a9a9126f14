"""The gauges of admission queues."""

from __future__ import annotations

from contextlib import ExitStack

from agent_server.admission.scheduler import Scheduler
from agent_server.metering.metrics import Metrics


def test_a_queue_that_was_replaced_under_its_name_leaves_the_gauges_to_its_successor() -> None:
    metrics, old = Metrics(), ExitStack()
    old.enter_context(metrics.watch_queue("terra", Scheduler(1)))
    with metrics.watch_queue("terra", Scheduler(2)):
        old.close()
        assert b'terrarium_slots{model="terra"} 2.0' in metrics.exposition()
    assert b'terra"' not in metrics.exposition()

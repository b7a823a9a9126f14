"""The `Tendril` base class: turns, conversation queues, delivery, traces, status."""

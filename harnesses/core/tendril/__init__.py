"""The base class of tendrils: turns, conversation queues, delivery, traces, status."""

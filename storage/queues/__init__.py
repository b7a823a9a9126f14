"""Durable queues and the state of background work: jobs, leases, reminders, outbox, pastes."""

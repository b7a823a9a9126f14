"""Services that every tendril has: the shared log, the outbox, reminders, privacy."""

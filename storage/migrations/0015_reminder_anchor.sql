-- The event that asked for a reminder, 0 where it is not logged.
ALTER TABLE reminders ADD COLUMN anchor INTEGER NOT NULL DEFAULT 0;

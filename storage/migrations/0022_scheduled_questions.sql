-- A reminder whose text is a question: the model is asked it, in the owner's name.
ALTER TABLE reminders ADD COLUMN asks INTEGER NOT NULL DEFAULT 0;

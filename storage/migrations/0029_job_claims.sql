-- How often a job was claimed. It only grows, while `attempts` begins again when a failed job is
-- retried, so that nobody who had claimed the job before can end a later attempt.
ALTER TABLE jobs ADD COLUMN claims INTEGER NOT NULL DEFAULT 0;

-- Questions that tendrils ask one another; a row lives as long as who asks waits for the answer.
CREATE TABLE peer_questions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    tendril TEXT NOT NULL,
    question TEXT NOT NULL,
    deadline INTEGER NOT NULL,
    taken INTEGER NOT NULL DEFAULT 0,
    answer TEXT
);
-- The run of another tendril in which a run was asked for, by its key.
ALTER TABLE runs ADD COLUMN caller TEXT NOT NULL DEFAULT '';
CREATE INDEX runs_of_caller ON runs (caller) WHERE caller != '';

-- What each turn did. Words are in it only where that is configured.
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE, -- the same for all attempts at one run
    conversation TEXT NOT NULL,
    private INTEGER NOT NULL,
    anchor INTEGER NOT NULL, -- log event of the question; 0 where there is none
    profile TEXT NOT NULL,
    model TEXT NOT NULL,
    started INTEGER NOT NULL,
    ended INTEGER, -- NULL while it runs
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    prompt INTEGER NOT NULL DEFAULT 0,
    cached INTEGER NOT NULL DEFAULT 0,
    completion INTEGER NOT NULL DEFAULT 0,
    iterations INTEGER NOT NULL DEFAULT 0,
    forced INTEGER NOT NULL DEFAULT 0,
    worded INTEGER NOT NULL, -- whether words are kept
    question TEXT NOT NULL DEFAULT '',
    answer TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX runs_started ON runs (started);
CREATE INDEX runs_open ON runs (outcome) WHERE outcome = 'running';

CREATE TABLE run_steps (
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL, -- model or tool
    name TEXT NOT NULL,
    ok INTEGER NOT NULL,
    ms INTEGER NOT NULL,
    verdict TEXT NOT NULL,
    prompt INTEGER NOT NULL,
    cached INTEGER NOT NULL,
    completion INTEGER NOT NULL,
    PRIMARY KEY (run_id, number)
) STRICT, WITHOUT ROWID;

-- Written before an effect (without a result) and after it, so that none happens twice.
CREATE TABLE effects (
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    tool TEXT NOT NULL,
    result TEXT,
    PRIMARY KEY (run_id, key)
) STRICT, WITHOUT ROWID;

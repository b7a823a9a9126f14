-- Who may use the agent server. Only a digest of each key is kept.
CREATE TABLE keys (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    hint TEXT NOT NULL, -- its first characters, to tell keys apart
    created INTEGER NOT NULL, -- microseconds since 1970-01-01 UTC
    revoked INTEGER,
    weight REAL NOT NULL,
    priority TEXT NOT NULL,
    requests_per_minute INTEGER,
    tokens_per_minute INTEGER,
    tokens_per_day INTEGER,
    parallel INTEGER
) STRICT;
CREATE UNIQUE INDEX keys_live ON keys (name) WHERE revoked IS NULL;

-- What was used: one row for each tendril, model and day.
CREATE TABLE usage (
    day TEXT NOT NULL, -- UTC, YYYY-MM-DD
    tendril TEXT NOT NULL,
    model TEXT NOT NULL,
    requests INTEGER NOT NULL,
    prompt INTEGER NOT NULL,
    cached INTEGER NOT NULL,
    completion INTEGER NOT NULL,
    cost REAL NOT NULL, -- in the currency of the price table
    PRIMARY KEY (day, tendril, model)
) STRICT, WITHOUT ROWID;

-- Forgettings that are not finished (storage/privacy/pending_erasures.py). A row is written before
-- anything is removed and goes last, so that whatever interrupts a forgetting, it can be finished.
CREATE TABLE erasures (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice: a process may still work on the last
    time INTEGER NOT NULL, -- microseconds since 1970-01-01 UTC
    actor TEXT NOT NULL, -- who had it done, as the audit log names them
    network TEXT, -- NULL: all
    person TEXT NOT NULL, -- JSON object; '' once nothing is left but to rewrite the file
    names TEXT NOT NULL, -- JSON list of nicks
    hosts TEXT NOT NULL, -- JSON list
    events BLOB NOT NULL, -- ids of the person's events, 64 bits each
    replies BLOB NOT NULL, -- and of the bot's lines that go with them
    quote_key BLOB NOT NULL,
    quotes BLOB NOT NULL, -- keyed hashes of the person's words (storage/privacy/quote_detector.py)
    steps TEXT NOT NULL, -- JSON list of what is left to be done
    removed_events INTEGER NOT NULL,
    removed_replies INTEGER NOT NULL,
    removed_turns INTEGER NOT NULL
) STRICT;

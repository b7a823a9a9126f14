-- Reasons to speak unasked, and what became of each; no words of people. Times are microseconds
-- since 1970-01-01 UTC.
CREATE TABLE signals (
    id INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    kind TEXT NOT NULL,
    network TEXT NOT NULL,
    channel TEXT NOT NULL COLLATE NOCASE,
    event_id INTEGER REFERENCES events (id) ON DELETE CASCADE, -- the line, if there is one
    about TEXT NOT NULL, -- in words of ours
    outcome TEXT NOT NULL, -- '' until the tendril of the place has felt it
    ended INTEGER, -- when it woke the model, or was let pass
    energy REAL NOT NULL, -- from 0 to 1, when it ended
    paste TEXT NOT NULL, -- the id of what was or would have been said
    is_good INTEGER -- whether it was a moment to speak, NULL if nobody has judged
) STRICT;
CREATE INDEX signals_time ON signals (time);
CREATE INDEX signals_event ON signals (event_id);

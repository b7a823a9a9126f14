-- What a tendril's attention keeps over a restart. All times are microseconds since 1970-01-01 UTC.
CREATE TABLE signals (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    network TEXT NOT NULL,
    channel TEXT NOT NULL COLLATE NOCASE,
    person TEXT NOT NULL COLLATE NOCASE, -- folded nick, or ''
    time INTEGER NOT NULL, -- from when on it counts
    value REAL NOT NULL,
    anchor INTEGER NOT NULL -- event that it is about, or 0
) STRICT;

CREATE TABLE put_off (
    kind TEXT NOT NULL,
    network TEXT NOT NULL,
    channel TEXT NOT NULL COLLATE NOCASE,
    value REAL NOT NULL,
    until INTEGER, -- NULL: until it is lifted
    PRIMARY KEY (kind, network, channel)
) STRICT, WITHOUT ROWID;

-- When the tendril last ran unasked.
CREATE TABLE contacts (
    network TEXT NOT NULL,
    channel TEXT NOT NULL COLLATE NOCASE,
    time INTEGER NOT NULL,
    PRIMARY KEY (network, channel)
) STRICT, WITHOUT ROWID;

CREATE TABLE energy (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    level REAL NOT NULL,
    time INTEGER NOT NULL
) STRICT;

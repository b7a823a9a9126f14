-- What persons and channels have used of the budgets of a UTC day, by pseudonyms whose key only
-- their tendril has. Rows of other days are removed.
CREATE TABLE spender_usage (
    day TEXT NOT NULL,
    tendril TEXT NOT NULL,
    model TEXT NOT NULL,
    channel TEXT NOT NULL,
    person TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    cost REAL NOT NULL,
    PRIMARY KEY (day, tendril, model, channel, person)
) STRICT, WITHOUT ROWID;

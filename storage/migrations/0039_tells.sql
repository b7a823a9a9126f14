-- What somebody wants another person to be told when they speak next; `nick` to `account` are the
-- recipient as last seen, `anchor` is the event that asked for it.
CREATE TABLE tells (
    id INTEGER PRIMARY KEY,
    network TEXT NOT NULL,
    channel TEXT NOT NULL COLLATE NOCASE, -- where it was asked for
    private INTEGER NOT NULL,
    nick TEXT NOT NULL COLLATE NOCASE,
    "user" TEXT NOT NULL,
    host TEXT NOT NULL COLLATE NOCASE,
    account TEXT COLLATE NOCASE,
    sender TEXT NOT NULL COLLATE NOCASE,
    text TEXT NOT NULL,
    time INTEGER NOT NULL, -- microseconds since 1970-01-01 UTC
    anchor INTEGER NOT NULL
) STRICT;

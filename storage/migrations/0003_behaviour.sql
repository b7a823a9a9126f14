-- What admins have set while the bot runs. The channel * stands for every channel of the network.
CREATE TABLE channel_settings (
    network TEXT NOT NULL,
    channel TEXT NOT NULL COLLATE NOCASE,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (network, channel, key)
) STRICT, WITHOUT ROWID;

-- Long answers; whoever knows the id may read one until it expires.
CREATE TABLE pastes (
    id TEXT PRIMARY KEY,
    network TEXT NOT NULL,
    channel TEXT NOT NULL COLLATE NOCASE,
    nick TEXT NOT NULL COLLATE NOCASE, -- who asked
    time INTEGER NOT NULL, -- microseconds since 1970-01-01 UTC, as is expires
    expires INTEGER NOT NULL,
    text TEXT NOT NULL,
    rest TEXT NOT NULL -- what has not been said yet
) STRICT, WITHOUT ROWID;
CREATE INDEX pastes_place ON pastes (network, channel, time);
CREATE INDEX pastes_expires ON pastes (expires);

CREATE TABLE audit (
    time INTEGER NOT NULL,
    network TEXT NOT NULL,
    channel TEXT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT;
CREATE INDEX audit_time ON audit (time);

CREATE TABLE channels (
    id INTEGER PRIMARY KEY,
    network TEXT NOT NULL,
    name TEXT NOT NULL COLLATE NOCASE,
    private INTEGER NOT NULL,
    UNIQUE (network, name)
) STRICT;

-- Ids grow in order of arrival here; since migration 4 they follow the times of the events.
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    channel_id INTEGER NOT NULL REFERENCES channels (id),
    type TEXT NOT NULL,
    time INTEGER NOT NULL, -- microseconds since 1970-01-01 UTC
    nick TEXT NOT NULL COLLATE NOCASE,
    user TEXT NOT NULL,
    host TEXT NOT NULL,
    account TEXT,
    target TEXT NOT NULL,
    text TEXT NOT NULL,
    msgid TEXT,
    own INTEGER NOT NULL,
    reply_to INTEGER
) STRICT;
CREATE INDEX events_channel ON events (channel_id, id);
CREATE INDEX events_spoken ON events (channel_id, id) WHERE type IN ('PRIVMSG', 'NOTICE', 'ACTION');
CREATE INDEX events_nick ON events (nick, id);

CREATE VIRTUAL TABLE events_text USING fts5 (
    text, content = 'events', content_rowid = 'id', tokenize = "unicode61 remove_diacritics 2"
);
CREATE TRIGGER events_indexed AFTER INSERT ON events
WHEN new.type IN ('PRIVMSG', 'NOTICE', 'ACTION') BEGIN
    INSERT INTO events_text (rowid, text) VALUES (new.id, new.text);
END;

CREATE TABLE conversations (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    log_start INTEGER NOT NULL DEFAULT 0, -- first event that the prompt still shows
    turn_start INTEGER NOT NULL DEFAULT 0 -- first turn that the prompt still shows
) STRICT;

-- One row is one whole turn, so that a tool call and its result never part.
CREATE TABLE turns (
    id INTEGER PRIMARY KEY,
    conversation_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    anchor INTEGER NOT NULL, -- event of the question; 0 where there is no log
    time INTEGER NOT NULL,
    messages TEXT NOT NULL -- JSON list of OpenAI messages, the question first
) STRICT;
CREATE INDEX turns_conversation ON turns (conversation_id, id);

CREATE TABLE schedule (
    job TEXT PRIMARY KEY,
    last_run INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE, -- the same message is posted once, however often it is tried
    network TEXT NOT NULL,
    channel TEXT NOT NULL,
    text TEXT NOT NULL,
    time INTEGER NOT NULL,
    sent INTEGER
) STRICT;
CREATE INDEX outbox_waiting ON outbox (id) WHERE sent IS NULL;

-- Ids follow time: an event's id is its time in milliseconds since 1970, or the next one that is
-- free. The events of an old file keep their order.
CREATE TABLE renumbered (old INTEGER PRIMARY KEY, new INTEGER NOT NULL) STRICT;
INSERT INTO renumbered
SELECT id, position + max(max(1, time / 1000) - position) OVER (ORDER BY id)
FROM (SELECT id, time, row_number() OVER (ORDER BY id) AS position FROM events);

CREATE TABLE timely_events (
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
INSERT INTO timely_events
SELECT new, channel_id, type, time, nick, user, host, account, target, text, msgid, own,
    (SELECT r.new FROM renumbered r WHERE r.old = reply_to)
FROM events JOIN renumbered ON old = id ORDER BY id;

UPDATE turns SET anchor = coalesce((SELECT new FROM renumbered WHERE old = anchor), 0);
UPDATE conversations SET log_start =
    coalesce((SELECT new FROM renumbered WHERE old >= log_start ORDER BY old LIMIT 1), 0)
WHERE log_start > 0;

DROP TABLE events_text;
DROP TABLE events;
DROP TABLE renumbered;
ALTER TABLE timely_events RENAME TO events;
-- Every index ends in the id by itself.
CREATE INDEX events_channel ON events (channel_id);
CREATE INDEX events_nick ON events (nick, channel_id);

-- One pair of full-text tables for each stretch of ids (storage/text_index/fts5.py makes them).
CREATE TABLE partitions (
    number INTEGER PRIMARY KEY,
    lines INTEGER NOT NULL,
    removed INTEGER NOT NULL, -- lines whose words the index's files still hold somewhere
    drift INTEGER NOT NULL -- the most that an id is ahead of its event's time, milliseconds
) STRICT;

-- What is counted as it is written (storage/log_index.py). The channel 0 is all public ones together.
CREATE TABLE totals (
    channel_id INTEGER PRIMARY KEY,
    events INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    own INTEGER NOT NULL,
    replies INTEGER NOT NULL
) STRICT;
CREATE TABLE hours (
    channel_id INTEGER NOT NULL,
    hour INTEGER NOT NULL, -- since 1970
    lines INTEGER NOT NULL,
    own INTEGER NOT NULL,
    replies INTEGER NOT NULL,
    PRIMARY KEY (channel_id, hour)
) STRICT, WITHOUT ROWID;
CREATE TABLE week (
    channel_id INTEGER NOT NULL,
    slot INTEGER NOT NULL, -- hours since Monday 0:00
    lines INTEGER NOT NULL,
    PRIMARY KEY (channel_id, slot)
) STRICT, WITHOUT ROWID;
CREATE TABLE people (
    channel_id INTEGER NOT NULL,
    nick TEXT NOT NULL COLLATE NOCASE,
    own INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    PRIMARY KEY (channel_id, nick, own)
) STRICT, WITHOUT ROWID;
CREATE INDEX people_lines ON people (channel_id, lines);
CREATE TABLE people_days (
    nick TEXT NOT NULL COLLATE NOCASE,
    channel_id INTEGER NOT NULL,
    day INTEGER NOT NULL, -- since 1970
    own INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    replies INTEGER NOT NULL,
    PRIMARY KEY (nick, channel_id, day, own)
) STRICT, WITHOUT ROWID;
CREATE INDEX people_days_day ON people_days (channel_id, day, lines, replies);

-- Work that is done later, whatever happens meanwhile (storage/queues/jobs.py). An id is never used
-- twice, so nothing waits for a job that is not its own.
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL, -- JSON object
    key TEXT UNIQUE, -- the same key is the same job
    lane TEXT NOT NULL, -- of one lane, unless it is empty, one job runs at a time
    priority INTEGER NOT NULL, -- the lowest number runs first
    state TEXT NOT NULL, -- pending, running, waiting, done, failed or dead
    attempts INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL,
    depends_on INTEGER,
    created INTEGER NOT NULL, -- microseconds since 1970-01-01 UTC, as are the others
    run_at INTEGER NOT NULL,
    lease INTEGER, -- until when a running job is its worker's
    finished INTEGER,
    worker TEXT NOT NULL DEFAULT '',
    result TEXT, -- JSON
    error TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX jobs_next ON jobs (state, run_at);
CREATE INDEX jobs_parent ON jobs (depends_on) WHERE depends_on IS NOT NULL;
CREATE INDEX jobs_lane ON jobs (lane) WHERE state = 'running';

-- Ids of turns are never used twice either: what has been summed up is known by the last one.
CREATE TABLE lasting_turns (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    anchor INTEGER NOT NULL, -- event of the question; 0 where there is no log
    time INTEGER NOT NULL,
    messages TEXT NOT NULL, -- JSON list of OpenAI messages, the question first
    related TEXT NOT NULL DEFAULT '[]' -- ids of earlier lines shown with the question: JSON list
) STRICT;
INSERT INTO lasting_turns SELECT id, conversation_id, anchor, time, messages, related FROM turns;
DROP TABLE turns;
ALTER TABLE lasting_turns RENAME TO turns;
CREATE INDEX turns_conversation ON turns (conversation_id, id);

-- What a conversation shares with others, as its channel; one that shares nothing is its own room.
ALTER TABLE conversations ADD COLUMN room TEXT NOT NULL DEFAULT '';
UPDATE conversations SET room = name;
CREATE INDEX conversations_room ON conversations (room);

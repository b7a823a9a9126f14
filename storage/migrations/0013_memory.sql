-- Who a conversation is with, as memory compares names; '' is not known yet.
ALTER TABLE conversations ADD COLUMN person TEXT NOT NULL DEFAULT '';

-- What is remembered beside turns (storage/memory/memories.py): facts and notes as somebody said
-- them, episodes and summaries made of turns. Nothing of one room is ever read for another.
CREATE TABLE memories (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    layer TEXT NOT NULL, -- fact, note, episode or summary
    room TEXT NOT NULL,
    subject TEXT NOT NULL, -- whom it is about; '' when nobody alone
    key TEXT NOT NULL, -- of a fact
    text TEXT NOT NULL,
    source TEXT NOT NULL, -- who said it
    manual INTEGER NOT NULL, -- whether somebody asked for it to be remembered
    confidence REAL NOT NULL,
    conversation TEXT NOT NULL, -- in which it was said; '' when it was made of several
    first_turn INTEGER NOT NULL, -- the first and the last turn that it is made of; 0 when it was
    last_turn INTEGER NOT NULL, -- said in the turn that goes on
    begun INTEGER NOT NULL, -- microseconds since 1970-01-01 UTC of the oldest that is in it
    time INTEGER NOT NULL -- and when it was written
) STRICT;
CREATE UNIQUE INDEX memories_fact ON memories (room, subject, key) WHERE layer = 'fact';
CREATE UNIQUE INDEX memories_summary ON memories (room) WHERE layer = 'summary';
CREATE INDEX memories_room ON memories (room, layer);
CREATE INDEX memories_conversation ON memories (conversation);

-- Whose words an episode or a summary is made of.
CREATE TABLE memory_sources (
    memory_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    conversation TEXT NOT NULL,
    person TEXT NOT NULL,
    PRIMARY KEY (memory_id, conversation, person)
) STRICT, WITHOUT ROWID;
CREATE INDEX memory_sources_conversation ON memory_sources (conversation);

CREATE TABLE memory_vectors (
    memory_id INTEGER PRIMARY KEY REFERENCES memories (id) ON DELETE CASCADE,
    model TEXT NOT NULL,
    vector BLOB NOT NULL -- float32, of length one
) STRICT;

CREATE VIRTUAL TABLE memory_text USING fts5 (
    key, text, content = 'memories', content_rowid = 'id',
    tokenize = "unicode61 remove_diacritics 2"
);
CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
    INSERT INTO memory_text (rowid, key, text) VALUES (new.id, new.key, new.text);
END;
CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN
    INSERT INTO memory_text (memory_text, rowid, key, text)
    VALUES ('delete', old.id, old.key, old.text);
END;
CREATE TRIGGER memories_changed AFTER UPDATE OF key, text ON memories BEGIN
    INSERT INTO memory_text (memory_text, rowid, key, text)
    VALUES ('delete', old.id, old.key, old.text);
    INSERT INTO memory_text (rowid, key, text) VALUES (new.id, new.key, new.text);
END;

-- How far each room has been gone through: the last turn that is in the summary, in an episode, or
-- was looked at for facts.
CREATE TABLE memory_rooms (
    room TEXT PRIMARY KEY,
    folded INTEGER NOT NULL DEFAULT 0,
    told INTEGER NOT NULL DEFAULT 0,
    studied INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL, -- grows when something is forgotten: what was read is void
    wanted INTEGER NOT NULL DEFAULT 0, -- the turn to which the summary is to reach again
    shown TEXT NOT NULL DEFAULT '', -- JSON: what prompts in this room show of it
    shown_turn INTEGER NOT NULL DEFAULT 0 -- the newest turn when that was chosen
) STRICT, WITHOUT ROWID;

-- Turns whose episode was deleted, as somebody in it was forgotten: another is made of the rest.
CREATE TABLE memory_gaps (
    room TEXT NOT NULL,
    first_turn INTEGER NOT NULL,
    last_turn INTEGER NOT NULL,
    PRIMARY KEY (room, first_turn)
) STRICT, WITHOUT ROWID;

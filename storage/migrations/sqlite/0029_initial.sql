-- Every index ends in the id by itself.
CREATE INDEX events_channel ON events (channel_id);
CREATE INDEX events_nick ON events (nick, channel_id);
CREATE INDEX jobs_lane ON jobs (lane) WHERE state = 'running';

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

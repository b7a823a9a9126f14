-- Keys that `terrarium up` makes for the processes it starts, anew each time. A server that has no
-- other keys stays open, and a key that somebody made may have the name of one of these.
ALTER TABLE keys ADD COLUMN launch INTEGER NOT NULL DEFAULT 0;
DROP INDEX keys_live;
CREATE UNIQUE INDEX keys_live ON keys (name, launch) WHERE revoked IS NULL;

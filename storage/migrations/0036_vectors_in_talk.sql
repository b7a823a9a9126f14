-- What a line means after the one before it. Without that line the vectors are made anew.
ALTER TABLE vectors ADD COLUMN before_id INTEGER REFERENCES events (id) ON DELETE CASCADE;
ALTER TABLE vectors ADD COLUMN in_talk BLOB;
CREATE INDEX vectors_before ON vectors (before_id);
DELETE FROM vectors;

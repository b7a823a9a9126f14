-- When a key stops being valid (microseconds since 1970-01-01 UTC), NULL for never.
ALTER TABLE keys ADD COLUMN expires INTEGER;

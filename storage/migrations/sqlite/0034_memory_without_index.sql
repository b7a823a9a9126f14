-- The memories of a room are few, and ranked without an index, as in PostgreSQL.
DROP TRIGGER memories_added;
DROP TRIGGER memories_removed;
DROP TRIGGER memories_changed;
DROP TABLE memory_text;

"""The full-text index of the log: FTS5 in SQLite, tsvector and pg_trgm in PostgreSQL."""

"""Stores in SQLite or PostgreSQL: chat log, memory, queues, usage. All SQL is written here."""

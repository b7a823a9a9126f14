"""SQLite stores: the chat log, memory, queues, usage. All SQL of the project is here."""

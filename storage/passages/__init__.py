"""Passage retrieval: log lines that answer a plain question, ranked."""

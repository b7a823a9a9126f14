"""Conversation memory: turns, summaries, facts, episodes, taught skills."""

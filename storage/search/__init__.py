"""Full-text and semantic search over the log."""

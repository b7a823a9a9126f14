"""Tools: their schema and validation, and the tools over the log."""

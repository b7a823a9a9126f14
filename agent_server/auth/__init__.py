"""API keys: the cache that requests are checked against, and the command line."""

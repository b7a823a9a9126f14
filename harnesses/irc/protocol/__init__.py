"""The IRC protocol without I/O: messages, limits, events."""

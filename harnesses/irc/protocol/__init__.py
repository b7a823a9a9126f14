"""The IRC protocol without a connection: messages, limits, events."""

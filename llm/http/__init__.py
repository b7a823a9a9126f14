"""HTTP/1.1 as little as it takes to talk to an engine or to the agent server, and as fast."""

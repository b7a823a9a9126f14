"""The agent loop: turns, tool execution, limits, traces."""

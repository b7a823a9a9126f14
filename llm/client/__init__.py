"""The client of the agent server: calls, token counts, models, usage."""

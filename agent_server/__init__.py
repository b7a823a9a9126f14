"""The agent server: an OpenAI-compatible API in front of models. It depends on no tendril."""

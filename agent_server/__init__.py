"""The agent server: an OpenAI-compatible API in front of models. It knows no tendril."""

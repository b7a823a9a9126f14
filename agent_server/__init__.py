"""The one mind: an OpenAI-compatible server in front of one model. Knows no tendril."""

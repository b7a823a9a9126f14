"""Engines: what makes the tokens. All of them speak the OpenAI API over HTTP."""

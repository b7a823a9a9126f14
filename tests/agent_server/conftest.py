"""Fixtures of all tests of the agent server: one in front of a scripted model, and its clients."""

from tests.kit.scripted_server import claude, http, openai, script, url

__all__ = ["claude", "http", "openai", "script", "url"]

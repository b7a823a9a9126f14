"""Anthropic's Messages API in front of the same mind."""

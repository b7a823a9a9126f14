"""Tests of llm.web."""

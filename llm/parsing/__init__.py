"""Parsers of model output: thoughts, tool calls, structured answers."""

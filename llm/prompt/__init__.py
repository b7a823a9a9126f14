"""Prompts: persona, log window, conversation turns, budget."""

"""Texts as vectors: a small multilingual model in a process of its own."""

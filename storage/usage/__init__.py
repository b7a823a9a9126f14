"""Tokens used, and the keys that may use them."""

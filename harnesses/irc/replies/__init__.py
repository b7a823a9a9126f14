"""Replies on their way to a channel: split, streamed, delivered."""

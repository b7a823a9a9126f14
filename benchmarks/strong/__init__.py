"""A day with a strong model: what reaches it, and what reaches people of its answers."""

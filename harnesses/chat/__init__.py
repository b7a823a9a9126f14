"""The terminal as a place to talk: `terrarium chat`."""

"""How to be a good client of the mind: client, turn, tools, context, memory."""

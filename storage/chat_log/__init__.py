"""The events of the chat log: written in order, indexed, counted, removed."""

"""The models that are served: their table, their capabilities, their engines."""

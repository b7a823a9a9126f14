"""The traces of turns."""

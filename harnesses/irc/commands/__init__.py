"""The commands that people give on IRC."""

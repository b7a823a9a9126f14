"""How long tests wait for what must come."""

PATIENCE = 60.0
"""Seconds. Nothing needs them: a test ends with the event, and fails late rather than wrongly on a
machine that has other things to do."""

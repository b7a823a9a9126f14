"""Timeout of tests."""

PATIENCE = 60.0
"""Seconds that tests wait for an expected event. Far more than any event takes, so that tests do
not fail on a busy machine; a successful wait ends with the event."""

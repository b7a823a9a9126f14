"""The log over HTTP: JSON endpoints and feeds."""

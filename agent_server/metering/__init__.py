"""Who sends a request, what it used, and what Prometheus is told."""

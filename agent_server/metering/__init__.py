"""The context of requests, the usage of keys, and Prometheus metrics."""

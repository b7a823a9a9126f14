"""Request contexts; quotas, budgets and usage of keys; Prometheus metrics; spans."""

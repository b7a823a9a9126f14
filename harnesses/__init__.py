"""The bodies: one folder a tendril, and the core that they share."""

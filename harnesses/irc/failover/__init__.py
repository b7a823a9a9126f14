"""Failover between IRC tendrils on the same networks: one is active, the others are on standby."""

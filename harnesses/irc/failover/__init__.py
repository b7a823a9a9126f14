"""Several IRC tendrils for the same networks: one is active, the others stand by."""

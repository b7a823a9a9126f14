"""Questions about the log that are answered without a model."""

"""Policy: which requests are answered and how often, and what the log keeps."""

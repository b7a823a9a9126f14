"""Model files on this machine: downloads, the store, GGUF headers."""

"""The models that can be pulled by name, and what this machine can run."""

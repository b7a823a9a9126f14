"""The tables of `terrarium.toml` that the agent server reads."""

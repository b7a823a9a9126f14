"""Tool calls for models without native support: prompted, constrained by a JSON schema."""

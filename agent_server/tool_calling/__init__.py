"""Tool calls for models without native support: prompted for, held to a schema."""

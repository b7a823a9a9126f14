"""Tool calls for models that have none of their own: asked for in words, held to by a schema."""

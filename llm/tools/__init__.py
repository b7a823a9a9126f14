"""Tools for models: the `@tool` decorator, schemas and validation, and the tools over the log."""

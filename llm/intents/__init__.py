"""Commands in plain words, recognised without a model."""

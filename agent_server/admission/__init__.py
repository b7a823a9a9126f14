"""Who may use the engine now, and who waits: fair between keys, interactive before background."""

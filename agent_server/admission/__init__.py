"""The queue in front of each engine: fair between keys, interactive before background."""

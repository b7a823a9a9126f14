"""Whether the answers are good: people ask over IRC, and the same model is asked bare."""

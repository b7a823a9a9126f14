"""Reading of questions: kind and language, once, from the embedding."""

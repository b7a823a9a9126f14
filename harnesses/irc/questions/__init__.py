"""Questions to the model, and turns that nobody asked for."""

"""The tendrils, one folder each, and the core that they share."""

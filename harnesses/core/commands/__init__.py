"""The commands of people, the same on every medium, and what a tendril adds with `@command`."""

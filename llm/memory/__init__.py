"""What a tendril remembers beside the turns of its conversations, and how it learns it."""

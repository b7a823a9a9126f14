"""The memory of tendrils beside the turns of conversations, and the jobs that make it."""

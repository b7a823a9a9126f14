"""The memory of tendrils beyond the turns of conversations, and the jobs that build it."""

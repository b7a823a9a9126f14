"""Which earlier lines of a channel belong to what somebody asks now: no model call, no network.

Several conversations run through one channel at once. For each line the chance is kept that it
and each line before it are of one conversation; for a question the likeliest lines are chosen.
"""

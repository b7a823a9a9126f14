"""Threads of a channel: the earlier lines that belong to a question, without a model call.

Several conversations run through one channel at once. For each line the probability is kept that it
and each line before it are of one conversation; for a question the likeliest lines are chosen.
"""

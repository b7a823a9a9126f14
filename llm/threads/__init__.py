"""Conversation disentanglement: the earlier lines of a channel that belong to a question, found
without a model call.

Several conversations run through one channel at once. For each line, the probabilities that it is
in the same conversation as each earlier line are kept; for a question the likeliest are chosen.
"""

"""Speaking unasked, triggered by a plain rule without a model.

`attention` holds the rule, `message_features` what it knows about a line, `proactive_scheduler` the
clock, the database and the model runs.
"""

"""Speaking unasked, decided by a plain rule without a model.

`attention` has the rule, `message_features` what it knows of a line, `proactive_scheduler` the
clock, the database and the runs of the model.
"""

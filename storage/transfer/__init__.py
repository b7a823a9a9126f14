"""Moving all that a tendril keeps from one kind of database to the other, while it is in use."""

"""Online transfer of a tendril's store between SQLite and PostgreSQL."""

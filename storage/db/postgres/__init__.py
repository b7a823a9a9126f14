"""PostgreSQL: connections, transactions, migrations."""

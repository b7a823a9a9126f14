"""Databases: connections, transactions, migrations, backups."""

"""SQLite: connections, transactions, migrations, backups."""

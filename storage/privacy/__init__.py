"""The right to be forgotten, retention and the audit log."""

"""Rows that wait for a process: jobs, reminders, messages, pastes."""

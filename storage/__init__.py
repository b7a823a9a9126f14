"""What is kept: chat log, conversations, settings. Imports nothing of ours; SQL is only here."""

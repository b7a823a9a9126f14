"""The Responses API: answers as items, kept for follow-up requests."""

"""The Responses API: answers as items, and kept for a while so that the next can follow."""

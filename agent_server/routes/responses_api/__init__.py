"""OpenAI's Responses API: answers as items, stored for follow-up requests."""

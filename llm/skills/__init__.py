"""Skills: what the bot can do or knows how to do beside talking, brought in when a question asks
for it (docs/skills.md)."""

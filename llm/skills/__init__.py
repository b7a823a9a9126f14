"""Skills: abilities and instructions that enter a prompt only when a question calls for them
(docs/skills.md)."""

"""The foundations that every package stands on. Imports none of them."""

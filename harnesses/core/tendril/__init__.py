"""The base of every tendril: its turns, its answers, its status file."""

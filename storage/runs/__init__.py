"""Runs: the recorded traces of turns."""

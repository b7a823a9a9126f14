"""Answerers: who answers a question, in order, before the model is asked."""

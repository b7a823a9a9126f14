"""Answerers: in order, they answer what needs no model."""

"""Engines: the backends that generate tokens or embeddings, behind one interface."""

"""Sockets, TLS, reconnects and the send queue of one network."""

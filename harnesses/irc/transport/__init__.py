"""Connections to networks: sockets, TLS, reconnects, the send queue."""

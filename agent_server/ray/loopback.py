"""Restriction of the ports of Ray Serve's replicas to loopback."""

from __future__ import annotations

import ray.util
from ray.serve._private import replica

LOOPBACK = "127.0.0.1"


def keep_replica_on_loopback() -> None:
    """Make this replica open its port on loopback, if its node is on loopback.

    To be called in a replica's constructor: after it, Ray Serve opens a port on all interfaces, for
    calls between deployments. That port needs no token and unpickles what it receives, so whoever
    reaches it can run code there, and Ray has no setting for its address.
    """
    if ray.util.get_node_ip_address() != LOOPBACK:
        return
    add_port = replica.add_port_to_grpc_server

    def on_loopback(server: object, address: str) -> int:
        port: int = add_port(server, f"{LOOPBACK}:{address.rpartition(':')[2]}")
        return port

    replica.add_port_to_grpc_server = on_loopback

"""A Ray of our own listens on loopback only."""

from __future__ import annotations

import ray.util
from ray.serve._private import replica

LOOPBACK = "127.0.0.1"


def keep_replica_on_loopback() -> None:
    """Open this replica's port on loopback, if its node is there; a constructor calls it.

    Ray Serve opens a port on all interfaces in each replica after its constructor, for calls
    between deployments. It asks for no token and unpickles what it is sent, and Ray has no setting
    for it.
    """
    if ray.util.get_node_ip_address() != LOOPBACK:
        return
    add_port = replica.add_port_to_grpc_server

    def on_loopback(server: object, address: str) -> int:
        port: int = add_port(server, f"{LOOPBACK}:{address.rpartition(':')[2]}")
        return port

    replica.add_port_to_grpc_server = on_loopback

"""The agent server on Ray Serve: one server, and replicas of the embedded engines.

The server is the same application as without Ray, with its queue, accounts and stored responses.
Ray Serve starts, checks and replaces the processes, chooses a replica of the engine for each
request, and scales their number. Only `terrarium server --ray` and `serve run
agent_server.ray.app:app` import the modules that need Ray, which the extra `ray` installs.
"""

"""The agent server on Ray Serve: several servers, their shared state, replicated engines.

Only `terrarium server --ray` and `serve run agent_server.ray.app:app` import the modules that need
Ray, which the extra `ray` installs.
"""

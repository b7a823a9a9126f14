"""The agent server on Ray Serve: several servers, replicated engines, one queue for all.

Only `terrarium server --ray` and `serve run agent_server.ray.app:app` import the modules that need
Ray, which the extra `ray` installs.
"""

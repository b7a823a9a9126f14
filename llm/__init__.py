"""The client side of the agent server: client, agent loop, tools, prompts, memory."""

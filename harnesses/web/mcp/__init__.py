"""The Model Context Protocol (MCP): the log and the model as tools and resources for clients."""

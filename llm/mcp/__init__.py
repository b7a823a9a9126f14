"""Tools of MCP servers (Model Context Protocol): foreign programs, trusted with nothing."""

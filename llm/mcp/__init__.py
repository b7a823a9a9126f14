"""Tools of MCP servers (Model Context Protocol), which are foreign programs and not trusted."""

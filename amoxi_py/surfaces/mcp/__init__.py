"""The MCP door: tools and agents for MCP clients, on the `mcp` package's low-level server, without sessions."""

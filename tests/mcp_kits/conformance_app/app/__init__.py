"""The app that the conformance kits call: tools declared as any app declares them, and what MCP has beside tools."""

"""OAuth 2.1 for `/mcp`: by an issuer of one's own, or by the app's own small authorization server."""

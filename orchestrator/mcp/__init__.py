"""The MCP server of `orchestrator mcp`: typed tools for AI agents, over stdin and stdout."""

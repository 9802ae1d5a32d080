"""The MCP stdio server of one session: first answer, protocol, tools, prompts, cancellation.

A front end: it calls the adapter API of `herd.coordinator` and decides nothing of its own.
"""

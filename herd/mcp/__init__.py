"""The MCP stdio server of one session: tools, prompts, cancellation. Not built yet.

A front end over the frames of `herd.rpc`; it will call the coordinator and decide nothing of its own.
"""

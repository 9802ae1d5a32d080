"""One adapter for each host: where its session id comes from, and how a message reaches its agent.

A front end beside `herd.cli` and `herd.mcp`; only here and in `herd.core.config` is the environment read.
"""

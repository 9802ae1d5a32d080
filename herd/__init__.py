"""Herd: the coding-agent sessions of one person find each other and exchange messages."""

"""Bytes between two sessions: frames, JSON-RPC messages, the handshake, connections, sockets and stdio.

This room knows who the other end proved to be and nothing of what is said: which method may be called by
whom is decided by the handlers above it. It lies beside `herd.presence` and ignorant of it; the keys and
endpoints that a record advertises are handed in.
"""

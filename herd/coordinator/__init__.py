"""The coordinator of one session: the only place where locks, presence, mail, roles and sockets meet.

Nothing below it imports it; front ends open one and call it, or reach it over its socket.
"""

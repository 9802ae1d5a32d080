"""Other machines: the saved list, the one ssh link to each, the endpoint at its far end. Not built yet.

Stands on `roles`; the only room that may import asyncssh. What a far side says is data, never permission.
"""

"""The floor everything stands on: errors, limits, settings, files, locks, time, text, identity.

Nothing here knows of messages, peers or hosts, and nothing here imports another room of Herd.
"""

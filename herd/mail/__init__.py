"""Messages and who answers for them: envelopes, receipts, mailbox, outbox, inbox, and how it is reached.

Above it stand roles, federation and the coordinator; below it the wire and the registry. It knows neither
roles nor hosts: whether two sessions may write to each other is asked through a callable.
"""

"""What work is whose: assignment records, the authority they give, their life cycle. Not built yet.

Stands on `herd.mail`; it knows work and checkouts, and no role.
"""

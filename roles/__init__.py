"""Who may do what: leads, managers, the chief, their leases and their eligibility. Not built yet.

Stands on `assignments`; `federation` and the coordinator ask it for verdicts.
"""

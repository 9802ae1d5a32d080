"""Shared resources of a machine: policies, tickets, the ledger of launches, the launcher. Not built yet."""

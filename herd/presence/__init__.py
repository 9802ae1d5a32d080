"""Who is here: the instance records in `peers/`, their publisher and the registry that reads them.

Stands on `herd.core`, beside `herd.rpc`. A presence is an observation, never permission.
"""

"""Child runs: exact executions inside a session that correspond for themselves.

What a run is and may do is told in `tree`, its mail in `live`, its life in `runs`, how others learn of it in
`directory` and `directories`, and who may ask for it in `channel`.
"""

"""Putting Herd into hosts and taking it out again: every file that a host reads and Herd changes.

`spans` and `edits` are pure text work; `disk` changes several files at once or none; `ledger` remembers what
was there before; `claude` and `pi` say what belongs into which file; `installing` does it and undoes it.
"""

"""Putting Herd into hosts and taking it out again: every file that a host reads and Herd changes.

`spans`, `style`, `edits` and `wanted` are pure work on text; `found` reads files and `disk` changes several
of them at once or none; `ledger` remembers what was there before; `claude` and `pi` say what belongs into
which file; `installing` does it and undoes it, and `looking` tells whether it is so.
"""

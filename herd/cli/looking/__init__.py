"""What `herd doctor` looks at, one module for each look.

None of them makes or changes anything, and a lock is held for no longer than it takes to look at it, or to
copy a mailbox. A look yields findings. What it cannot look at it raises, as `HerdError`, `OSError` or
`sqlite3.Error`; `finding.tried` tells that.
"""

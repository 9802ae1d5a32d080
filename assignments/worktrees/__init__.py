"""Worktree groups: checkouts that share one common directory, by git and by Herdr."""

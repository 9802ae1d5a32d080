"""Worktree groups: checkouts that share one common directory, by git and by Herdr.

So far only the labels of a folder are read here; groups are not built yet.
"""

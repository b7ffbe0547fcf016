"""Runs: a system on data, over the folds of a split, measured and kept in a folder.

Goes in: a system, its settings, data. Writes run folders; no system is known by name.
"""

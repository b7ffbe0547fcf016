"""Runs: a system on data, over the folds of a split, measured and kept in a folder. No system is named here."""

"""Runs over folds, kept in folders, and the published tables that they are held against."""

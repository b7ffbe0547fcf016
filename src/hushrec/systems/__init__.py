"""The published systems: one file each, or a folder for a large one with all that is its own.

They import maths from below and do no I/O, but for live modes and stores on disk. To add one: its
file here, a line in `hushrec/registry.py`, a test. See `docs/design.md`.
"""

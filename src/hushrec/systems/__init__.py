"""The published systems: one file each, or a folder for a large one. They import the maths that they need below.

To add one: its file here, a line in `hushrec/registry.py`, a test. See `docs/design.md`.
"""

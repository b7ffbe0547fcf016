"""The papers' tables and figures, with the published numbers, and what it takes to measure them again.

Goes in: the name of a table. Runs systems, and probes inside of runs what a paper looked at.
"""

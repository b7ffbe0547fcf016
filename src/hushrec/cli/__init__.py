"""The command line, one file per verb.

Goes in: what a user types. Reads options, calls the rooms below, prints; bad input ends in one line and exit code 2.
"""

"""The command line, one file per verb.

Goes in: what a user types. Reads options, calls the rooms below, prints. Bad input ends in one line, exit code 2.
"""

"""What a run has to say: tables, figures, one self-contained page.

Goes in: runs as their folders keep them. Writes pages and pictures; nothing private but what the runs hold.
"""

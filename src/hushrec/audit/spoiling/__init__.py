"""Clients that lie: what they upload instead of what they should, and what becomes of a run with some of them.

Goes in: a job, and the share of clients that lie. Liars see what clients see, and work together.
"""

"""Recommendations over HTTP, from a run whose holder may rank. Needs the extra `serve`.

Goes in: a run's folder and requests. Opens a port; says nothing about anybody but who is asked for.
"""

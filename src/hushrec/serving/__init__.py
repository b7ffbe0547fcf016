"""Recommendations over HTTP, from a run whose holder may rank. Needs the extra `serve`."""

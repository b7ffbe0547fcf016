"""Systems on a real network: kits, nodes, the server's job, and who watches over it.

Goes in: orders and packets. Private state stays on its node's disk; no system and no model is known by name.
"""

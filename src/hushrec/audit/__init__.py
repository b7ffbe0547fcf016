"""The audit: what somebody saw of a run, and what could be concluded from it.

Goes in: a recorded transcript, and what the attacker itself holds. Attacks see nothing else, and import no system.
"""

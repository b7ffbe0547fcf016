"""The audit: what somebody saw of a run, and what could be concluded from it."""

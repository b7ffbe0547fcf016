"""Makes the helpers of one folder of tests importable from all others: `systems.runs`, `deploy.federation`."""

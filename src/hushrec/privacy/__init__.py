"""Mechanisms that hide: exact sums, filling, denoising, randomised response."""

"""Mechanisms that hide and that two systems share: exact sums, filling, denoising, sealing, encryption.

Goes in: arrays, keys and draws. No clock and no socket; what a mechanism guarantees is in its docstring.
"""

"""Arithmetic for compiled kernels: rows of factors in registers, sets of items as bits.

Goes in: arrays. Nothing is drawn, read or written here, and no model or message is known.
"""

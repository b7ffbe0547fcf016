"""Arithmetic for compiled kernels: rows of factors in registers, sets of items as bits."""

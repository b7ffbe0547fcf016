# mypy: allow-untyped-defs, allow-untyped-calls
"""Sets of items as bits of 64-bit words, inside compiled kernels."""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types

from hushrec.kernels.untyped import intrinsic


@intrinsic
def lowest_bit(_typing: Any, word: Any) -> Any:
    """Place of the lowest set bit of a word that is not zero."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@numba.njit(nogil=True, cache=True)
def bit_of(item):
    """The bit of an item within its word."""
    return np.uint64(1) << np.uint64(item & 63)

"""Numba's decorator for code generators, for type checkers: what it makes can be called from kernels only."""

from collections.abc import Callable
from typing import Any

import numba.extending

intrinsic: Callable[[Any], Any] = numba.extending.intrinsic

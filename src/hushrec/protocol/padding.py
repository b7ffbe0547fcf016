"""Padding: lengths of messages rounded up to classes, so that who watches the network learns no more than those.

Messages whose length is the same for all parties are left as they are. What a class leaves open: with `padme` the
length up to an eighth at most, with `powers` up to a factor of two, with a fixed size how many times that it is,
which is once if no message is longer.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hushrec.protocol.messages import Message

Padding = Literal["none", "padme", "powers", "64k", "256k", "1m"]

PADDING_HELP = (
    "pad messages whose lengths differ: to classes at most 12% apart (padme), to powers of two, or to multiples "
    "of 64 KiB, 256 KiB or 1 MiB"
)

_FIXED = {"64k": 1 << 16, "256k": 1 << 18, "1m": 1 << 20}


def padding_of(config: object) -> Padding:
    """How messages are padded with these settings."""
    padding: Padding = getattr(config, "padding", "none")
    return padding


def is_padded(message_type: type[Message], padding: Padding) -> bool:
    """Whether messages of a type are padded: those that have rows, the others are all of one length."""
    return padding != "none" and any(kind.layout == "ragged" for kind in message_type.kinds())


def padded_sizes(sizes: NDArray[np.int64], padding: Padding) -> NDArray[np.int64]:
    """The lengths of padded messages, in bytes; of positive ones."""
    if padding == "none":
        return sizes
    if padding in _FIXED:
        step = np.int64(_FIXED[padding])
    else:
        exponents = np.frexp(sizes.astype(np.float64))[1].astype(np.int64) - 1  # floor(log2)
        if padding == "powers":
            return np.where(sizes == 1 << exponents, sizes, 2 << exponents)
        # Padme (Nikitin et al., PoPETs 2019, Alg. 1): of E bits below the first, floor(log2 E) + 1 may be set.
        kept = np.frexp(np.maximum(exponents, 1).astype(np.float64))[1].astype(np.int64)
        step = 1 << np.maximum(exponents - kept, 0)
    rounded: NDArray[np.int64] = -(-sizes // step) * step
    return rounded


def padded_size(size: int, padding: Padding) -> int:
    """The length of one padded message."""
    return int(padded_sizes(np.array([size], np.int64), padding)[0])

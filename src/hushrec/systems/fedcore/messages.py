"""What the parties of FedCORE tell each other while they train, in the order of sending. Used by `system.py`."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushrec.limits import MOST_STEPS
from hushrec.protocol import Message, Numbers, Ragged, Role, each, ragged, shared, writer_number


@dataclass(frozen=True)
class TakeStep(Message):
    """Reveals: who takes part."""

    sender, receiver = Role.SERVER, Role.PARTNER
    step: NDArray[np.int64] = shared(np.int64, 0, low=0, high=MOST_STEPS)
    num_steps: NDArray[np.int64] = shared(np.int64, 0, low=1, high=MOST_STEPS)
    partners: Numbers = shared(np.int32, low=0)


@dataclass(frozen=True)
class UserGradients(Message):
    """Reveals: which common users have ratings in the batch, so over an epoch how many each has; without noise,
    nearly which item and rating.
    """

    sender, receiver = Role.PARTNER, Role.PARTNER
    writer: Numbers = writer_number()
    step: NDArray[np.int64] = each(np.int64, low=0, high=MOST_STEPS)
    users: Ragged = ragged(np.int32, low=0)
    gradients: Ragged = ragged(np.float32, 2)


@dataclass(frozen=True)
class ItemGradients(Message):
    """Reveals: which aligned items have ratings in the batch; without noise, the direction of the vectors of users
    who rated them, also of users whom the receiver does not have, and for common users who rated what and how.

    Sent only if some items are aligned.
    """

    sender, receiver = Role.PARTNER, Role.PARTNER
    writer: Numbers = writer_number()
    step: NDArray[np.int64] = each(np.int64, low=0, high=MOST_STEPS)
    items: Ragged = ragged(np.int32, low=0)
    gradients: Ragged = ragged(np.float32, 2)


@dataclass(frozen=True)
class LayerGradients(Message):
    """Reveals: the mean gradient of NeuCF's layers over the batch; no privatiser touches it."""

    sender, receiver = Role.PARTNER, Role.PARTNER
    writer: Numbers = writer_number()
    step: NDArray[np.int64] = each(np.int64, low=0, high=MOST_STEPS)
    gradient: Ragged = ragged(np.float32)


@dataclass(frozen=True)
class Stepped(Message):
    """Reveals: that the partner is there."""

    sender, receiver = Role.PARTNER, Role.SERVER


@dataclass(frozen=True)
class Settle(Message):
    """Reveals: who takes part."""

    sender, receiver = Role.SERVER, Role.PARTNER
    num_steps: NDArray[np.int64] = shared(np.int64, 0, low=1, high=MOST_STEPS)
    partners: Numbers = shared(np.int32, low=0)


@dataclass(frozen=True)
class Settled(Message):
    """Reveals: a digest of the partner's model."""

    sender, receiver = Role.PARTNER, Role.SERVER
    digest: Ragged = ragged(np.uint8)

"""The messages of PTF-FedRec, in the order of sending: lists of items with scores, both ways."""

from dataclasses import dataclass

import numpy as np

from hushrec.protocol import Message, Ragged, Role, ragged


@dataclass(frozen=True)
class Told(Message):
    """Reveals: the server's scores of a few items for this client, nothing else of its model."""

    sender, receiver = Role.SERVER, Role.CLIENT
    items: Ragged = ragged(np.int32, low=0)
    scores: Ragged = ragged(np.float32, low=0, high=1)


@dataclass(frozen=True)
class Predictions(Message):
    """Reveals: a list of items, positives among them, with the scores that the client's model gives them."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)
    scores: Ragged = ragged(np.float32, low=0, high=1)

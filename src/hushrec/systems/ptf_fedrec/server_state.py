"""What PTF-FedRec's server keeps between rounds."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushrec.models.server_model import Learned
from hushrec.protocol import Ragged, kept
from hushrec.systems.ptf_fedrec.uploads import Shown


@dataclass(frozen=True)
class ServerState:
    """What the server knows: its model with Adam's state, and the last upload of each client."""

    parameters: NDArray[np.float32] = kept(result=True)
    means: NDArray[np.float32] = kept()
    squares: NDArray[np.float32] = kept()
    num_steps: NDArray[np.int64] = kept()
    num_updates: NDArray[np.int64] = kept()  # of each item
    shown_starts: NDArray[np.int64] = kept()  # per client: its last upload
    shown_items: NDArray[np.int32] = kept()
    shown_scores: NDArray[np.float32] = kept()

    @property
    def learned(self) -> Learned:
        """The model with Adam's state, as training takes it."""
        return Learned(self.parameters, self.means, self.squares, self.num_steps)

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of clients and of items."""
        return len(self.shown_starts) - 1, len(self.num_updates)

    @property
    def last_uploads(self) -> Shown:
        """The last upload of each client, one slice each."""
        return Shown(Ragged(self.shown_starts, self.shown_items), Ragged(self.shown_starts, self.shown_scores))

    @classmethod
    def of(cls, learned: Learned, num_updates: NDArray[np.int64], shown: Shown) -> "ServerState":
        """The whole state, as arrays."""
        starts, items, scores = shown.items.starts, shown.items.values, shown.scores.values
        model = (learned.parameters, learned.means, learned.squares, learned.num_steps)
        return cls(*model, num_updates, starts, items, scores)

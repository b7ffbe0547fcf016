"""What one client itself has: for audits, which give it to an attacker as its own."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.systems.ptf_fedrec.clients import LocalClients


def holds_of(clients: LocalClients, _config: object, number: int) -> Mapping[str, NDArray[Any]]:
    """Its positives, and how many items there are in all."""
    row = int(np.flatnonzero(clients.numbers == number)[0])
    first = clients.starts[row]
    positives = clients.slot_items[first : first + clients.num_positives[row]]
    return {"items": positives, "num_items": np.array(clients.num_items)}

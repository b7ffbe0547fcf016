"""What MetaMF's generating network says of all items, as a function of a user's vector, with its slopes.

Symbols: as in `hushrec.systems.metamf.network`.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hushrec.models.newcomers import Reals


class GeneratedLogits:
    """Logits of all items, and their slopes by the vector, forward through the network."""

    def __init__(self, parts: Mapping[str, NDArray[np.float32]], item_memory: int) -> None:
        self._parts = {name: part.astype(np.float64) for name, part in parts.items() if name != "users"}
        self._item_memory = item_memory

    def __call__(self, vector: Reals) -> tuple[Reals, Reals]:
        """Slopes have a row per item."""
        size = len(vector)
        first, of_first = self._made("first", "first", vector)
        second, of_second = self._made("second", "second", vector)
        right, of_right = self._made("items", "right", vector)
        left, of_left = self._made("items", "left", vector)
        width = len(second) - 1
        right, of_right = right.reshape(-1, size), of_right.reshape(-1, size, size)
        left, of_left = left.reshape(-1, self._item_memory), of_left.reshape(-1, self._item_memory, size)
        weight, of_weight = first[: size * width].reshape(size, width), of_first[: size * width]
        mixed = right @ weight
        of_mixed = np.einsum("sfd,fw->swd", of_right, weight)
        of_mixed += np.einsum("sf,fwd->swd", right, of_weight.reshape(size, width, size))
        raw = left @ mixed + first[size * width :]
        of_raw = np.einsum("isd,sw->iwd", of_left, mixed, optimize=True) + of_first[size * width :]
        of_raw += np.einsum("is,swd->iwd", left, of_mixed, optimize=True)
        hidden = np.maximum(raw, 0)
        slopes = np.einsum("iw,iwd->id", (raw > 0) * second[:width], of_raw, optimize=True)
        slopes += hidden @ of_second[:width] + of_second[width]
        return hidden @ second[:width] + second[width], slopes

    def _made(self, part: str, name: str, vector: Reals) -> tuple[Reals, Reals]:
        """What one of the network's outputs is, and its slopes."""
        parts = self._parts
        raw = vector @ parts["memory"] @ parts[f"{part}_hidden"].T + parts[f"{part}_hidden_bias"]
        slopes = (parts[f"{part}_hidden"] * (raw > 0)[:, None]) @ parts["memory"].T
        return parts[name] @ np.maximum(raw, 0) + parts[f"{name}_bias"], parts[name] @ slopes

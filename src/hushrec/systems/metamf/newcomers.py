"""What MetaMF's generating network says of all items, as a function of a user's vector, with its slopes.

Symbols: as in `hushrec.systems.metamf.network`.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hushrec.models.newcomers import Reals, Slopes


class GeneratedLogits:
    """Logits of all items, and their slopes by the vector: back to the largest layer, forward through others."""

    def __init__(self, parts: Mapping[str, NDArray[np.float32]], item_memory: int) -> None:
        self._parts = {name: part.astype(np.float64) for name, part in parts.items() if name != "users"}
        self._item_memory = item_memory

    def __call__(self, vector: Reals) -> tuple[Reals, Slopes]:
        """Slopes have a row per item."""
        size = len(vector)
        first, second = self._made("first", "first", vector), self._made("second", "second", vector)
        right = self._made("items", "right", vector).reshape(-1, size)
        left = self._made("items", "left", vector).reshape(-1, self._item_memory)
        width = len(second) - 1
        weight = first[: size * width].reshape(size, width)
        mixed = right @ weight
        raw = left @ mixed + first[size * width :]
        hidden = np.maximum(raw, 0)

        def slopes() -> Reals:
            of_first, of_second = (self._made_slopes(name, name, vector) for name in ("first", "second"))
            of_right = self._made_slopes("items", "right", vector).reshape(-1, size, size)
            of_mixed = np.einsum("sfd,fw->swd", of_right, weight)
            of_mixed += np.einsum("sf,fwd->swd", right, of_first[: size * width].reshape(size, width, size))
            of_raw = (raw > 0) * second[:width]
            of_left = np.einsum("is,ish->ih", of_raw @ mixed.T, self._parts["left"].reshape(*left.shape, -1))
            found: Reals = of_left @ self._hidden_slopes("items", vector)
            found += np.einsum("is,iw->isw", left, of_raw).reshape(len(left), -1) @ of_mixed.reshape(-1, size)
            found += of_raw @ of_first[size * width :] + hidden @ of_second[:width] + of_second[width]
            return found

        return hidden @ second[:width] + second[width] + self._parts.get("offsets", 0.0), slopes

    def _raw(self, part: str, vector: Reals) -> Reals:
        parts = self._parts
        raw: Reals = vector @ parts["memory"] @ parts[f"{part}_hidden"].T + parts[f"{part}_hidden_bias"]
        return raw

    def _made(self, part: str, name: str, vector: Reals) -> Reals:
        """What one of the network's outputs is."""
        return self._parts[name] @ np.maximum(self._raw(part, vector), 0) + self._parts[f"{name}_bias"]

    def _made_slopes(self, part: str, name: str, vector: Reals) -> Reals:
        return self._parts[name] @ self._hidden_slopes(part, vector)

    def _hidden_slopes(self, part: str, vector: Reals) -> Reals:
        """Slopes of a hidden layer: (hidden, num_factors)."""
        is_on = self._raw(part, vector) > 0
        slopes: Reals = (self._parts[f"{part}_hidden"] * is_on[:, None]) @ self._parts["memory"].T
        return slopes

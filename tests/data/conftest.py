import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hushrec.data.checking import checked
from hushrec.data.interactions import Interactions

# In development the real files lie beside the checkout.
BESIDE_THE_CHECKOUT = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def real_folder() -> Path:
    folder = Path(os.environ.get("HUSHREC_DATA") or BESIDE_THE_CHECKOUT)
    if not (folder / "ml-100k.parquet").is_file():
        pytest.skip("needs the real files: set HUSHREC_DATA to their folder")
    return folder


@pytest.fixture
def make() -> Callable[..., Interactions]:
    """Interactions from lists; ids are the numbers plus 10."""

    def build(
        users: list[int],
        items: list[int],
        ratings: list[float] | None = None,
        timestamps: list[int] | None = None,
        order: list[int] | None = None,
        num_users: int | None = None,
        num_items: int | None = None,
        rating_range: tuple[float, float] | None = None,
    ) -> Interactions:
        num_users = max(users, default=-1) + 1 if num_users is None else num_users
        num_items = max(items, default=-1) + 1 if num_items is None else num_items
        return checked(
            Interactions(
                users=np.array(users, np.int32),
                items=np.array(items, np.int32),
                ratings=None if ratings is None else np.array(ratings, np.float32),
                timestamps=None if timestamps is None else np.array(timestamps, np.int64),
                order=None if order is None else np.array(order, np.int32),
                user_ids=np.arange(10, 10 + num_users, dtype=np.int64),
                item_ids=np.arange(10, 10 + num_items, dtype=np.int64),
                titles=None,
                rating_range=rating_range,
                name="made",
                sha256="",
                is_synthetic=False,
            )
        )

    return build

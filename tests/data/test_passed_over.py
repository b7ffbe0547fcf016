from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hushrec.data import Interactions, latest_share, load, stream_order, with_passed_over
from hushrec.errors import HushrecError

Make = Callable[..., Interactions]


@pytest.fixture(scope="module")
def clicks() -> Interactions:
    return load("synthetic:users=30,items=40,ratings=300").as_implicit()


@pytest.mark.parametrize("per_item", [1, 2])
def test_each_item_follows_items_that_the_user_never_takes(clicks: Interactions, per_item: int) -> None:
    few = clicks.select(clicks.items < 12)
    data = with_passed_over(few, per_item, 0)
    assert data.ratings is not None
    assert len(data) == (per_item + 1) * len(few)
    assert data.rating_range == (0.0, 1.0)
    ratings = data.ratings.reshape(-1, per_item + 1)
    assert ratings[:, -1].all()
    assert not ratings[:, :-1].any()
    users = data.users.reshape(-1, per_item + 1)
    assert (users == users[:, :1]).all()
    pairs = set(zip(data.users.tolist(), data.items.tolist(), strict=True))
    assert len(pairs) == len(data), "none twice, and none that is taken"
    taken = data.ratings == 1
    assert set(zip(data.users[taken].tolist(), data.items[taken].tolist(), strict=True)) == set(
        zip(few.users.tolist(), few.items.tolist(), strict=True)
    )


def test_items_are_drawn_evenly(clicks: Interactions) -> None:
    """20 users draw 20 of 100 others each; a count has mean 4, and is above 16 with chance 1e-6."""
    users, items = np.divmod(np.arange(100), 5)
    data = replace(
        clicks, users=users.astype(np.int32), items=items.astype(np.int32), item_ids=np.arange(105), titles=None
    )
    drawn = with_passed_over(data, 4, 0)
    counts = np.bincount(drawn.items, minlength=105)
    assert (counts[:5] == 20).all(), "the taken ones, never drawn"
    assert counts[5:].sum() == 400
    assert counts[5:].max() <= 16


def test_the_seed_decides(clicks: Interactions) -> None:
    one, same, other = (with_passed_over(clicks.select(clicks.items < 12), 1, seed).items for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_order_and_times_are_kept(make: Make) -> None:
    """The stream of two users; the drawn one comes right before the taken one, and splits by time still work."""
    data = make([0, 0, 1], [0, 1, 2], ratings=None, rating_range=None, timestamps=[30, 10, 20], order=[1, 0, 0])
    data = replace(data, item_ids=np.arange(9), titles=None)
    told = with_passed_over(data, 1, 0)
    rows = stream_order(told)
    assert told.ratings is not None
    assert told.ratings[rows].tolist() == [0, 1] * 3
    assert told.items[rows][1::2].tolist() == [1, 2, 0]
    assert told.users[rows].tolist() == [0, 0, 1, 1, 0, 0]
    assert latest_share(told, 0.5).test.items.tolist()[-1] in (0, 2)


def test_what_cannot_be_drawn_is_refused(clicks: Interactions) -> None:
    with pytest.raises(HushrecError, match="too few other items to draw 40 for each; use fewer"):
        with_passed_over(clicks, 40, 0)
    with pytest.raises(HushrecError, match="says itself what users did not like; leave passed_over= out"):
        with_passed_over(load("synthetic:users=30,items=40,ratings=300"), 1, 0)

import hashlib
import struct
from dataclasses import replace

import numpy as np
import pytest

from hushrec.data.checking import RowError, checked, data_digest, without_duplicates
from hushrec.errors import HushrecError


def test_sizes_count_the_vocabulary(make) -> None:
    data = make([1, 0], [2, 2], [3, 4], num_users=5, num_items=9)
    assert (len(data), data.num_users, data.num_items) == (2, 5, 9)


def test_by_user_sorts_items_and_carries_ratings(make) -> None:
    rows = make([2, 0, 2, 0], [1, 3, 0, 2], [1, 2, 3, 4], num_users=4).by_user()
    assert rows.starts.tolist() == [0, 2, 2, 4, 4]
    assert rows.items.tolist() == [2, 3, 0, 1]
    assert rows.ratings is not None
    assert rows.ratings.tolist() == [4, 2, 3, 1]


def test_by_user_copies_nothing_that_is_in_order(make) -> None:
    data = make([0, 0, 2], [1, 3, 0], [1, 2, 3])
    rows = data.by_user()
    assert rows.items is data.items
    assert rows.ratings is data.ratings
    assert rows.starts.tolist() == [0, 2, 2, 3]


def test_by_user_of_implicit_feedback_has_no_ratings(make) -> None:
    assert make([1, 0], [0, 0]).by_user().ratings is None


@pytest.mark.parametrize("rows", [np.array([2, 0]), np.array([True, False, True])])
def test_select_keeps_vocabularies_and_digest(make, rows: np.ndarray) -> None:
    data = make([0, 1, 2], [5, 6, 7], [1, 2, 3], [7, 8, 9], [0, 0, 0])
    part = data.select(rows)
    assert sorted(part.timestamps.tolist()) == [7, 9]
    assert sorted(part.items.tolist()) == [5, 7]
    assert sorted(part.ratings.tolist()) == [1, 3]
    assert part.order.size == 2
    assert (part.num_users, part.num_items, part.sha256) == (3, 8, data.sha256)


def test_signed_from_the_middle_of_the_range_up(make) -> None:
    data = make([0, 0, 1, 1], [0, 1, 0, 1], [1, 3, 2.5, 5], rating_range=(1, 5))
    signed = data.as_signed()
    assert signed.ratings.tolist() == [0, 1, 0, 1]
    assert signed.ratings.dtype == np.float32
    assert (signed.rating_range, signed.sha256) == ((0.0, 1.0), data.sha256)
    assert signed.as_signed().ratings.tolist() == [0, 1, 0, 1]
    assert signed.as_signed().rating_range == (0.0, 1.0)
    assert signed.as_signed().signed_from == signed.signed_from == (1.0, 5.0, 3.0)
    assert data.as_signed(4.0).signed_from == (1.0, 5.0, 4.0)


def test_signed_without_ratings_is_all_positive(make) -> None:
    signed = make([0, 1], [0, 1]).as_signed()
    assert (signed.ratings.tolist(), signed.rating_range) == ([1, 1], (0.0, 1.0))
    assert signed.as_signed().ratings.tolist() == [1, 1]
    assert signed.signed_from is None


def test_numbers_of_original_ids(make) -> None:
    data = make([0, 1], [0, 3])
    assert data.user_number(11) == data.user_number("11") == 1
    assert data.item_number("13") == 3
    texts = replace(data, user_ids=np.array(["7", "ann"]))
    assert texts.user_number(7) == 0
    assert texts.user_number("ann") == 1


@pytest.mark.parametrize("unknown", [9, 12, "x", "", 10**30, -1])
def test_unknown_id_shows_what_ids_look_like(make, unknown: object) -> None:
    with pytest.raises(HushrecError, match=r"no user .* in made; its 2 user ids are numbers$"):
        make([0, 1], [0, 3]).user_number(unknown)


def test_digest_is_the_documented_one(make) -> None:
    """Two users 10, 11; one item 10; user 11 rated it 4. Starts are 0, 0, 1."""
    data = make([1], [0], [4])
    expected = hashlib.sha256(
        b"hushrec-data-1\n"
        + b"int 2\n"
        + struct.pack("<2q", 10, 11)
        + b"int 1\n"
        + struct.pack("<q", 10)
        + struct.pack("<3q", 0, 0, 1)
        + struct.pack("<i", 0)
        + struct.pack("<f", 4)
    )
    assert data.sha256 == expected.hexdigest()


def test_digest_ignores_row_order_times_and_titles_only(make) -> None:
    data = make([0, 1], [1, 0], [2, 5], [3, 4])
    assert data.sha256 == make([1, 0], [0, 1], [5, 2]).sha256
    assert data.sha256 == data_digest(replace(data, titles=np.array(["a", "b"]), name="other"))
    others = [
        make([0, 1], [1, 0]),
        make([0, 1], [1, 0], [2, 4]),
        make([0, 1], [1, 1], [2, 5]),
        make([0, 1], [1, 0], [2, 5], num_items=3),
        replace(data, user_ids=np.array(["10", "11"])),
    ]
    assert len({data.sha256, *(data_digest(other) for other in others)}) == 6


def test_rating_range_is_what_occurs_unless_given(make) -> None:
    assert make([0, 1], [0, 0], [2, 5]).rating_range == (2, 5)
    assert make([0, 1], [0, 0], [2, 5], rating_range=(1, 9)).rating_range == (1, 9)
    assert make([0, 1], [0, 0]).rating_range is None


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_rating_that_is_not_finite(make, bad: float) -> None:
    with pytest.raises(RowError, match=r"row 2: rating is .*; expected a finite number"):
        make([0, 1], [0, 0], [1, bad])


def test_rating_outside_the_range(make) -> None:
    with pytest.raises(RowError, match="row 2: rating is 6; expected 1 to 5"):
        make([0, 1, 2], [0, 0, 0], [1, 6, 7], rating_range=(1, 5))


def test_duplicate_pair_is_named_by_original_ids(make) -> None:
    reason = r"row 3: user 11 and item 12 were there before \(1 such rows\); .* duplicates='last' or"
    with pytest.raises(RowError, match=reason):
        make([1, 0, 1], [2, 2, 2], [1, 2, 3])


@pytest.mark.parametrize(("how", "rating"), [("last", 5), ("mean", 3)])
def test_without_duplicates_keeps_the_last_row(make, how, rating: float) -> None:
    data = make([1, 0, 1, 1], [0, 0, 1, 2], [1, 2, 3, 5], [1, 2, 3, 4])
    repeated = replace(data, items=np.array([0, 0, 0, 0], np.int32))
    single = without_duplicates(repeated, how)
    assert single.users.tolist() == [0, 1]
    assert single.ratings.tolist() == [2, rating]
    assert single.timestamps.tolist() == [2, 4]
    assert len(repeated) == 4
    assert repeated.ratings.tolist() == [1, 2, 3, 5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"users": np.array([0, 1])}, "users must be int32"),
        ({"users": np.array([0, 2], np.int32)}, r"users must lie in 0\.\.1"),
        ({"items": np.array([0, -1], np.int32)}, r"items must lie in 0\.\.0"),
        ({"items": np.array([0], np.int32)}, "items has 1 rows, users has 2"),
        ({"ratings": np.ones(3, np.float32)}, "ratings has 3 rows, users has 2"),
        ({"titles": np.array(["a", "b"])}, "2 titles for 1 items"),
        ({"user_ids": np.array([5, 5])}, "user_ids must be sorted and distinct"),
    ],
)
def test_checked_refuses_columns_that_do_not_fit(make, change: dict, message: str) -> None:
    with pytest.raises(HushrecError, match=message):
        checked(replace(make([0, 1], [0, 0], [1, 2]), **change))

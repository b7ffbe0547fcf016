"""Scored items that clients showed the server."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushrec.errors import DivergedError, HushrecError
from hushrec.models.server_model import Pairs
from hushrec.protocol import Ragged
from hushrec.systems.ptf_fedrec.uploads import Shown, Uploads


@dataclass(frozen=True)
class Scored:
    items: Ragged
    scores: Ragged


def scored(*of_clients: list[tuple[int, float]]) -> Scored:
    starts = np.concatenate([[0], np.cumsum([len(own) for own in of_clients])])
    rows = [row for own in of_clients for row in own]
    return Scored(
        Ragged(starts, np.array([item for item, _ in rows], np.int32)),
        Ragged(starts, np.array([score for _, score in rows], np.float32)),
    )


def numbers(*who: int) -> np.ndarray:
    return np.array(who, np.int32)


def rows(pairs: Pairs) -> list[tuple[int, int, float]]:
    return list(zip(pairs.users.tolist(), pairs.items.tolist(), pairs.labels.tolist(), strict=True))


EXPECTED = [(0, 4, 0.5), (2, 1, 1.0), (2, 3, 0.25), (5, 0, 0.0)]


def test_uploads_are_in_the_order_of_clients_however_they_came() -> None:
    batches = [
        (numbers(2), scored([(1, 1.0), (3, 0.25)])),
        (numbers(0, 5), scored([(4, 0.5)], [(0, 0.0)])),
    ]
    for order in (batches, batches[::-1]):
        uploads = Uploads(5, 9, False)
        fork = uploads.fork()
        uploads.add(*order[0])
        fork.add(*order[1])
        uploads.merge(fork)
        assert rows(uploads.pairs()) == EXPECTED


def test_an_item_outside_the_catalogue_is_refused_with_its_sender() -> None:
    with pytest.raises(HushrecError, match=r"^client 5 lists an item that is not in the catalogue; leave it out$"):
        Uploads(5, 9, False).add(numbers(2, 3, 5), scored([(4, 0.5)], [], [(1, 0.5), (5, 0.5)]))


def test_who_lists_an_item_twice_or_too_many_is_refused() -> None:
    """Else one client could make an item count as often as it likes."""
    twice = scored([(4, 0.5)], [(1, 0.5), (1, 0.5)])
    with pytest.raises(
        HushrecError, match=r"^client 3 lists items twice or not in ascending order; leave it out$"
    ):
        Uploads(5, 9, False).add(numbers(2, 3), twice)
    Uploads(5, 2, True).add(numbers(2, 3), twice)
    with pytest.raises(HushrecError, match=r"^client 3 lists more than 1 items; leave it out$"):
        Uploads(5, 1, True).add(numbers(2, 3), twice)


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_score_that_is_not_finite_is_divergence(score: float) -> None:
    with pytest.raises(DivergedError, match=r"^a score of client 3 is not finite$"):
        Uploads(5, 9, False).add(numbers(2, 3), scored([(4, 0.5)], [(1, score)]))


def test_who_did_not_come_keeps_its_last_upload() -> None:
    uploads = Uploads(5, 9, False)
    uploads.add(numbers(0, 2), scored([(4, 0.5)], [(1, 1.0), (3, 0.25)]))
    first = Shown.nothing(4).updated(uploads.pairs(), numbers(0, 2))
    assert first.items.lengths.tolist() == [1, 0, 2, 0]
    again = Uploads(5, 9, False)
    again.add(numbers(1, 2), scored([(0, 0.75)], []))
    second = first.updated(again.pairs(), numbers(1, 2))
    assert rows(second.pairs()) == [(0, 4, 0.5), (1, 0, 0.75)], "client 2 came, and showed nothing"
    assert second.items.lengths.tolist() == [1, 1, 0, 0]
    assert rows(Shown.nothing(3).pairs()) == []


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.data())
def test_at_most_keeps_the_first_rows_of_each(lengths: list[int], data: st.DataObject) -> None:
    most = data.draw(st.lists(st.integers(0, 8), min_size=len(lengths), max_size=len(lengths)))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    given_rows = Ragged(starts, np.arange(starts[-1]))
    found = given_rows.at_most(np.array(most))
    for place, (length, limit) in enumerate(zip(lengths, most, strict=True)):
        own = given_rows.values[starts[place] : starts[place + 1]]
        np.testing.assert_array_equal(found.values[found.starts[place] : found.starts[place + 1]], own[:limit])
        assert found.lengths[place] == min(length, limit)

import numpy as np
import pytest

from audit.owner_views import replies, request
from hushrec.audit.attacks.request_watching import guess_all_pairs
from hushrec.audit.requests import answered, asked_for
from hushrec.errors import HushrecError


def test_groups_are_numbered_over_owners_and_requests() -> None:
    """Owner 4 asks twice, with groups 0 and 1, then 0 again: three groups; owner 2 comes first."""
    asked = asked_for([
        request({2: [([7], [1])], 4: [([7], [1, 2]), ([8, 9], [3])]}),
        request({4: [([7], [5])]}),
    ])  # fmt: skip
    assert asked.owners.tolist() == [2] * 2 + [4] * 8
    assert asked.requests.tolist() == [0] * 2 + [1] * 6 + [2] * 2
    assert asked.groups.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 3, 3]
    assert asked.group_starts.tolist() == [0, 2, 5, 8, 10]
    assert asked.num_users.tolist() == [1, 1, 2, 1]
    assert asked.numbers.tolist() == [7, 1, 7, 1, 2, 8, 9, 3, 7, 5]


def test_every_user_of_a_group_with_every_item_of_it() -> None:
    guesses = guess_all_pairs(asked_for([request({3: [([7], [1, 2]), ([8, 9], [4, 5])]})]))
    pairs = list(zip(guesses.users.tolist(), guesses.items.tolist(), strict=True))
    assert sorted(pairs) == [(7, 1), (7, 2), (8, 4), (8, 5), (9, 4), (9, 5)]
    assert guesses.owners.tolist() == [3] * 6
    assert guesses.is_positive is None


def test_nothing_seen_is_nothing_guessed() -> None:
    asked = asked_for([])
    assert not len(asked.groups)
    assert not len(guess_all_pairs(asked).users)
    vectors, gradients = answered([], asked)
    assert not len(vectors)
    assert not len(gradients)


def test_replies_are_brought_to_their_rows() -> None:
    seen = [request({1: [([0], [5])], 3: [([0], [6])]})]
    of_one, of_three = np.ones((2, 2)), np.full((2, 2), 3.0)
    seen += [*replies(3, of_three, -of_three), *replies(1, of_one, -of_one)]
    asked = asked_for(seen)
    vectors, gradients = answered(seen, asked)
    assert vectors[:, 0].tolist() == [1, 1, 3, 3]
    assert gradients[:, 0].tolist() == [-1, -1, -3, -3]


def test_unanswered_requests_are_refused() -> None:
    seen = [request({1: [([0], [5])], 3: [([0], [6])]}), *replies(3, np.ones((2, 2)), np.ones((2, 2)))]
    with pytest.raises(HushrecError, match="no owner is lost"):
        answered(seen, asked_for(seen))

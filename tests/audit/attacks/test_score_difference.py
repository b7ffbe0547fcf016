import numpy as np
import pytest
from numpy.typing import NDArray

from audit.owner_views import Group, request
from hushrec.audit.attacks.gradient_direction import guess_by_directions
from hushrec.audit.attacks.score_difference import guess_by_scores
from hushrec.audit.interactions import Guesses
from hushrec.audit.requests import Moved, asked_for, follow

RATE, RIDGE = 0.1, 0.01


def triples(guesses: Guesses) -> set[tuple[int, int, bool]]:
    assert guesses.is_positive is not None
    columns = (guesses.users, guesses.items, guesses.is_positive)
    return set(zip(*(column.tolist() for column in columns), strict=True))


def moved(groups: list[Group], vectors: NDArray[np.float64], gradients: NDArray[np.float64]) -> Moved:
    asked = asked_for([request({0: groups})])
    return follow(asked, vectors.astype(np.float32), gradients.astype(np.float32), RATE, RIDGE)


def test_by_hand() -> None:
    """Users 0 = (1, 0) and 1 = (0, 2), items 5 and 6 at zero. Item 5 moves up along user 0: g = (-1, 0); item 6
    down along user 1: g = (0, 0.5). Users stay where they are.
    """
    vectors = np.array([[1.0, 0], [0, 2], [0, 0], [0, 0]])
    gradients = np.array([[0.0, 0], [0, 0], [-1, 0], [0, 0.5]])
    case = moved([([0, 1], [5, 6])], vectors, gradients)
    assert triples(guess_by_scores(case)) == {(0, 5, True), (1, 6, False)}
    assert triples(guess_by_directions(case)) == {(0, 5, True), (1, 6, False)}


def test_a_long_vector_misleads_scores_and_not_directions() -> None:
    """User 1 is user 0 turned a little, ten times as long: its score of item 5 moves more, by user 0's doing."""
    vectors = np.array([[1.0, 0], [10, 1], [0, 0]])
    case = moved([([0, 1], [5])], vectors, np.array([[0.0, 0], [0, 0], [-1, 0]]))
    assert triples(guess_by_scores(case)) == {(1, 5, True)}
    assert triples(guess_by_directions(case)) == {(0, 5, True)}


@pytest.mark.parametrize("num_users", [2, 5, 20])
def test_all_users_of_an_item_are_found(num_users: int) -> None:
    """Items with one, two and three users, among up to 20, with the ridge of each; float32 on the way."""
    rng = np.random.default_rng(3)
    users, items = rng.normal(size=(num_users, 16)), rng.normal(size=(30, 16))
    gradients, truth = np.zeros_like(items), set()
    for item in range(30):
        had = rng.choice(num_users, min(1 + item % 3, num_users), replace=False)
        for user in had.tolist():
            is_positive = bool(rng.random() < 0.5)
            weight = rng.uniform(0.1, 0.5) * (-1 if is_positive else 1)
            gradients[item] += weight * users[user] + RIDGE * items[item]
            truth.add((user, item, is_positive))
    vectors = np.concatenate([users, items])
    case = moved([(list(range(num_users)), list(range(30)))], vectors, np.concatenate([0 * users, gradients]))
    assert triples(guess_by_directions(case)) == truth


def test_vectors_move_from_group_to_group_of_a_request() -> None:
    """User 0 is in three groups: its vector is v, v - a g1, v - a (g1 + g2); in another request it is v again."""
    asked = asked_for([request({0: [([0], [1]), ([0], [2]), ([0], [1])]}), request({0: [([0], [1])]})])
    vectors, gradients = np.ones((8, 1), np.float32), np.arange(1, 9, dtype=np.float32)[:, None]
    followed = follow(asked, vectors, gradients, 0.5, 0.0)
    assert followed.vectors[:, 0].tolist() == [1, 1, 0.5, 1, -1, 0, 1, 1]


def test_no_fit_is_one_guess() -> None:
    """A gradient that no users' vectors make up gives the user closest to it."""
    vectors = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 0]])
    case = moved([([3, 4], [5])], vectors, np.array([[0.0, 0, 0], [0, 0, 0], [-1, -0.5, 4]]))
    assert triples(guess_by_directions(case)) == {(3, 5, True)}


def test_vectors_without_length_break_nothing() -> None:
    guesses = guess_by_directions(moved([([0, 1], [5])], np.zeros((3, 1)), np.ones((3, 1))))
    assert len(guesses.users) == 1


@pytest.mark.parametrize(
    ("users", "stay", "theta", "expected"),
    [
        ([3, 4], [4], 2, {(3, 5, True), (4, 6, True)}),  # user 4 has the block without a pair
        ([3, 4], [3, 4], 2, {(3, 5, True)}),  # both may have one
        ([3, 4], [4], 5, {(3, 5, True)}),  # user 3 may have another block
        ([3], [], 2, {(3, 5, True), (3, 6, True)}),  # there is nobody else
    ],
)
def test_an_item_that_stays_is_of_the_only_user_who_stays(
    users: list[int], stay: list[int], theta: int, expected: set[tuple[int, int, bool]]
) -> None:
    """Item 5 moves up along user 3, item 6 does not move: it is in a block without a pair. Scores say nothing."""
    vectors = np.concatenate([np.eye(2)[: len(users)], np.zeros((2, 2))])
    of_users = [[0.0, 0.0] if user in stay else [0.0, 1.0] for user in users]
    case = moved([(users, [5, 6])], vectors, np.array([*of_users, [-1.0, 0.0], [0.0, 0.0]]))
    assert triples(guess_by_directions(case, theta)) == expected
    assert {item for _, item, _ in triples(guess_by_scores(case))} == {5}

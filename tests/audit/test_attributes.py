"""Who users are, from what they sent."""

import numpy as np
import pytest

from audit.conftest import NOTHING, Bare, sent
from hushrec.audit.attributes import Guessed, Inferred, guess, infer, judge, ridge
from hushrec.audit.scoreboard import Own
from hushrec.errors import HushrecError


def knowing(**texts: list[str]) -> Own:
    return NOTHING._replace(attributes={name: np.array(column) for name, column in texts.items()})


def test_ridge_by_hand() -> None:
    """Two rows of length 1 at a right angle, targets 1 and -1: each weight is its target over 1 + the ridge.

    Left out, each is predicted by 0 whatever the ridge: the first of them is taken, .01 of the mean square 1.
    """
    weights = ridge(np.eye(2), np.array([[1.0], [-1.0]]))
    assert weights.ravel().tolist() == pytest.approx([1 / 1.01, -1 / 1.01])


def test_planted_classes_are_found() -> None:
    """Users list the item of their class and one that all list; of 40 every second one is known."""
    genders = ["F" if user < 30 else "M" for user in range(40)]
    known = [gender if user % 2 == 0 else "" for user, gender in enumerate(genders)]
    known[31] = known[33] = known[35] = known[37] = known[39] = "M"  # ten of them: enough
    view = [sent({user: [(genders[user] == "M", 1.0), (2, 1.0)] for user in range(40)}, Bare)]
    found = infer(None, view, knowing(gender=known)).guesses
    assert set(found) == {"gender"}
    assert found["gender"].users.tolist() == list(range(1, 30, 2))
    assert set(found["gender"].texts.tolist()) == {"F"}


def test_rounds_add_up() -> None:
    """What is listed twice counts twice, and new items make room."""
    own = knowing(gender=["F", "", "M"])
    first = infer(None, [sent({0: [(1, 1.0)], 2: [(0, 1.0)]}, Bare)], own)
    second = infer(first, [sent({0: [(1, 1.0), (3, 1.0)]}, Bare)], own)
    assert second.seen.tolist() == [[0, 2, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]]
    assert second.guesses == {}, "nobody is both unknown and seen"


def test_at_chance_where_uploads_do_not_depend_on_who_users_are() -> None:
    """2,000 users list 10 of 50 items at random; three in four are of one class. Half is known.

    Balanced accuracy of guesses at random has a deviation of sqrt(.25 (1 / 250 + 1 / 750)) / 2 = .0183. |z| < 4.
    """
    generator = np.random.default_rng(1)
    truth = np.where(generator.random(2000) < 0.75, "M", "F")
    rows = np.argsort(generator.random((2000, 50)), axis=1) < 10
    found = guess(rows / np.sqrt(10), np.where(np.arange(2000) % 2 == 0, truth, ""))
    assert found is not None
    outcome = judge(Inferred(np.zeros((0, 0), np.float32), {"gender": found}), {"gender": truth}, "gender")
    assert len(outcome.victims) == 1000
    assert outcome.scores.mean() == pytest.approx(0.5, abs=4 * 0.0183)
    assert outcome.chances.mean() == 0.5


def test_balanced_accuracy_by_hand() -> None:
    """Three of class a, two right; one of class b, right: (2/3 + 1) / 2. One of class c is left out."""
    truth = np.array(["a", "a", "a", "b", "c"])
    guessed = Guessed(np.arange(5), np.array(["a", "b", "a", "b", "a"]), np.array(["a", "b"]))
    outcome = judge(Inferred(np.zeros((5, 0), np.float32), {"x": guessed}), {"x": truth}, "x")
    assert outcome.victims.tolist() == [0, 1, 2, 3]
    assert outcome.scores.mean() == pytest.approx(5 / 6)
    assert outcome.chances.tolist() == [0.5] * 4


def test_too_few_known_of_a_class_are_not_learned() -> None:
    assert guess(np.eye(30), np.array(["F"] * 15 + ["M"] * 9 + [""] * 6)) is None


def test_without_a_file_of_users_it_says_so() -> None:
    with pytest.raises(HushrecError, match=r"^nothing is known of who the users of this data are$"):
        infer(None, [], NOTHING)

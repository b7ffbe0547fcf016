"""Ratings from one upload: by hand, on systems, on other scales, and at chance where nothing leaks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import hushrec
from hushrec.audit.attacks import ATTACKS
from hushrec.audit.driver import audit
from hushrec.audit.one_upload import Read, has_rows, judge_found, judge_items, judge_ratings, read_uploads
from hushrec.audit.scoreboard import Own, Truth
from hushrec.audit.uploads import items_of
from hushrec.data import Interactions
from hushrec.protocol import Message, Ragged, Recorded, Role, ragged, shared
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import job_for

NAMES = ("rated items in one upload", "rated items found in one upload", "ratings from one upload")


@dataclass(frozen=True)
class Vectors(Message):
    """Reveals: the model."""

    sender, receiver = Role.SERVER, Role.CLIENT
    item_factors: np.ndarray = shared(np.float32, 2)


@dataclass(frozen=True)
class Rows(Message):
    """Reveals: rows of items."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32, low=0)
    gradients: Ragged = ragged(np.float32, 2)


def own(**settings: Any) -> Own:
    known = {"regularization": 0.5, "learning_rate": 1.0, "decay": 1.0, "rho": 1, **settings}
    return Own(known, {}, np.random.default_rng(0))


def exchanged(vectors: np.ndarray, lists: list[list[int]], rows: list[np.ndarray]) -> list[Recorded]:
    """V to all clients, and what they answered."""
    clients = np.arange(len(lists), dtype=np.int32)
    starts = np.cumsum([0, *map(len, lists)])
    items = np.concatenate(lists).astype(np.int32)
    answer = Rows(Ragged(starts, items), Ragged(starts, np.concatenate(rows).astype(np.float32)))
    return [Recorded(1, clients, Vectors(vectors.astype(np.float32))), Recorded(1, clients, answer)]


def rated(truth: Truth, ratings: list[float]) -> Truth:
    values = np.array(ratings, np.float32)
    return truth._replace(train=replace(truth.train, ratings=values))


def test_three_ratings_by_hand(owning: Callable[..., Truth]) -> None:
    """U = (2, 0), lambda = 1/2, V = (1, 0), (1/2, 1), (2, 3), (1, 1); ratings 3, 1, 5 and a virtual one of 2.7.

    Errors U V - r are -1, 0, -1, -0.7, so rows e U + V / 2 are (-1.5, 0), (0.25, 0.5), (-1, 1.5), (-0.9, 0.5).
    Along (1, 0) that is a = -2, 0, -2, -1.4 and b = 1, 0.5, 2, 1. With s = 2 the ratings s b - a / s are 3, 1, 5
    and 2.7; no other s has three whole ones, as s / 2 is whole and 2 s + 2 / s too.
    """
    vectors = np.array([[1, 0], [0.5, 1], [2, 3], [1, 1]])
    rows = np.array([[-1.5, 0], [0.25, 0.5], [-1, 1.5], [-0.9, 0.5]])
    read = read_uploads(None, exchanged(np.vstack([vectors, np.ones((2, 2))]), [[0, 1, 2, 3]], [rows]), own())
    assert items_of(read.pairs).tolist() == [0, 1, 2, 3]
    assert read.is_rated.tolist() == [True, True, True, False]
    assert read.ratings[:3].tolist() == [3, 1, 5]
    truth = rated(owning([[0, 1, 2]], 6), [3, 1, 5])
    for judge, chance in ((judge_items, 0.75), (judge_found, 0.75), (judge_ratings, 1 / 3)):
        outcome = judge(read, truth)
        assert outcome.scores.tolist() == [1]
        assert outcome.chances[0] == pytest.approx(chance)


def test_with_biases_by_hand() -> None:
    """U = 1/2 and b_u = 1/4; V = 1 and 2, b_i = 0 and 1/2; ratings 4 and 5 are 1 and 2 in units from the middle.

    Errors U V + b_u + b_i - r are 3/4 - 1 = -1/4 and 7/4 - 2 = -1/4; rows are (e U + V / 2, e): (3/8, -1/4) and
    (7/8, -1/4). So U V + b_i - e is 3/4 and 7/4, on steps with 1/4 more, or a whole number beside: b_u began at 0.
    """
    vectors = np.array([[1, 0], [2, 0.5], [0, 0]])
    rows = np.array([[0.375, -0.25], [0.875, -0.25]])
    settings = own(rho=0, biases=True, shrinkage=0.0, user_update="rated")
    read = read_uploads(None, exchanged(vectors, [[0, 1]], [rows]), settings)
    assert read.is_rated.tolist() == [True, True]
    np.testing.assert_allclose(read.ratings, [1, 2], atol=1e-6)
    assert read.offsets.tolist() == [pytest.approx(0.5)], "b_u less the mean error"


def told(scale: np.ndarray, num_clients: int = 30) -> tuple[Read, list[np.ndarray], list[np.ndarray]]:
    """What comes of clients with 15 ratings of this scale each, and 15 predicted ones; their ratings and marks."""
    generator = np.random.default_rng(3)
    vectors = generator.normal(0, 1, (200, 6)).astype(np.float32)
    lists, rows, ratings, marks = [], [], [], []
    for _ in range(num_clients):
        items = np.sort(generator.choice(200, 30, replace=False))
        is_own = generator.permutation(30) < 15
        user = generator.normal(0, 0.6, 6) * scale.mean() / 3
        values = np.where(is_own, generator.choice(scale, 30), generator.uniform(scale[0], scale[-1], 30))
        errors = vectors[items] @ user - values
        lists.append(items.tolist())
        rows.append(errors[:, None] * user + 0.5 * vectors[items])
        ratings.append(values)
        marks.append(is_own)
    return read_uploads(None, exchanged(vectors, lists, rows), own()), ratings, marks


@pytest.mark.parametrize(
    "scale",
    [np.arange(1.0, 6), np.arange(0.5, 5.5, 0.5), np.arange(1.0, 11), np.array([7.0, 9.5, 12, 14.5, 17])],
    ids=["whole", "half", "ten", "unknown"],
)
def test_the_scale_is_found(scale: np.ndarray) -> None:
    read, ratings, marks = told(scale)
    expected, is_own = np.concatenate(ratings), np.concatenate(marks)
    assert (read.is_rated == is_own).mean() > 0.97
    assert (np.abs(read.ratings - expected) < 1e-3)[is_own].mean() > 0.97


def test_rows_without_a_common_direction_tell_nothing(owning: Callable[..., Truth]) -> None:
    """As masked ones are: all that is listed is taken, and every score is that of a blind guess."""
    generator = np.random.default_rng(0)
    lists = [list(range(first, first + 8)) for first in range(4)]
    masked = [generator.integers(-(2**62), 2**62, (8, 4)).astype(np.float64) for _ in lists]
    truth = rated(owning([one[::2] for one in lists], 20), [4, 3, 4, 5] * 4)
    for width in (4, 3):  # as long as vectors, or not
        view = exchanged(generator.normal(0, 1, (20, width)), lists, masked)
        read = read_uploads(None, view, own())
        for judge in (judge_items, judge_found, judge_ratings):
            outcome = judge(read, truth)
            np.testing.assert_array_equal(outcome.scores, outcome.chances)


@pytest.fixture(scope="module")
def data() -> Interactions:
    return hushrec.load("synthetic:users=60,items=300,ratings=2400")


def scores(data: Interactions, name: str, **settings: Any) -> dict[str, tuple[float, float]]:
    job = job_for(SYSTEMS[name], SYSTEMS[name].configure({"num_rounds": 2, **settings}), 0, data)
    done = audit(job, RuntimeOptions(1), lambda _progress, _scores: None, [ATTACKS[name] for name in NAMES])
    return {finding.attack.name: (finding.score, finding.chance) for finding in done.findings}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedrec", {"predict_after": 0}),
        ("fedrec", {"update": "sequential", "predict_after": 0}),
        ("fedrec++", {"resample": "once", "predict_after": 0}),
        ("fedrec++", {"biases": True, "shrinkage": 3.0, "predict_after": 0}),
        ("sdcf", {"temperature": 0.0}),
    ],
)
def test_systems_are_read(data: Interactions, name: str, settings: dict[str, Any]) -> None:
    found = scores(data, name, **settings)
    assert found["ratings from one upload"][0] > 0.95
    if name != "sdcf":  # whose errors of unrated items are those of rated ones, often near a step by V = 0
        assert found["rated items in one upload"][0] > 0.9
        assert found["rated items found in one upload"][0] > 0.9


@pytest.mark.parametrize(("step", "low"), [(2.0, 1.5), (0.5, 0.5), (2.5, 7.0)])
def test_of_a_scale_the_ends_are_enough(data: Interactions, step: float, low: float) -> None:
    """From the first rounds on, when vectors are short and several scales would fit."""
    assert data.ratings is not None
    ratings = (low + step * (data.ratings - 1)).astype(np.float32)
    scaled = replace(data, ratings=ratings, rating_range=(low, low + 4 * step))
    found = scores(scaled, "fedrec", num_rounds=1)
    assert found["ratings from one upload"][0] > 0.95
    assert found["rated items in one upload"][0] > 0.9


@pytest.mark.parametrize("settings", [{}, {"biases": True, "shrinkage": 3.0}])
def test_ratings_drawn_from_the_clients_own_hide_items_and_not_ratings(
    data: Interactions, settings: dict[str, Any]
) -> None:
    """All that is listed is on steps of the scale then; what a listed rating would be is read all the same."""
    found = scores(data, "fedrec", filling="drawn", **settings)
    for name in NAMES[:2]:
        score, chance = found[name]
        assert score == pytest.approx(chance, abs=0.01)
    assert found[NAMES[2]][0] > 0.95


def test_langevin_noise_hides_ratings(data: Interactions) -> None:
    found = scores(data, "sdcf")
    assert all(score == pytest.approx(chance, abs=1e-9) for score, chance in found.values())
    assert len(found) == 3


def test_it_reads_rows_of_listed_items() -> None:
    assert [has_rows(kind) for kind in (Rows, Vectors)] == [True, False]

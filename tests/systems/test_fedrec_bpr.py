from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hushrec.data.interactions import UserRows
from hushrec.errors import HushrecError
from hushrec.evaluation.ranking import ranking_metrics
from hushrec.systems import fedrec_bpr
from hushrec.systems.fedrec_bpr import PairRows
from hushrec.systems.fedrec_plus_plus import DenoisingSums, Noise

from .positive_runs import Finished, Positives, assert_same, positives, run, some_positives
from .runs import digest, losing

GOLDEN = "107b58d36da3d54cfc005c4374e432cad49b34f40666844cfd60db9455c6fec2"


def fit(data: Positives, **options: Any) -> Finished:
    return run(fedrec_bpr.SYSTEM, data, **options)


def test_hand_worked_round() -> None:
    """Two clients, four items, one factor. Client 0 has item 0; client 1 has nothing and is the denoiser.

    V is (2, 0) for item 0 and (0, 0) for the others, where the second number is the bias. One negative, one step.
    Three items are unrated: one is the negative, the other two are the virtual pair, so all four are listed.

    The real pair has the difference (2, 0). From U = (0, 1) its margin is 0, so c = sigma(0) = 1/2. L is
    lambda + 2^2 / 4 = 2, so U = (1/2 * 1/2 * 2, 1) = (1/2, 1). Then the margin is 1/2 * 2 = 1 and
    c = sigma(-1) = .2689: the rows are -c (1/2, 1) for item 0 and c (1/2, 1) for the negative.
    The virtual pair has the difference 0: its rows are -1/2 (1/2, 1) and 1/2 (1/2, 1), and they are the noise.

    Without them the server has -.1345 + lambda * 2 > 0 and -.2689 for item 0, .1345 and .2689 for the negative.
    Adam's first step is the learning rate (1/4; for biases twice that) against the sign: item 0 gets
    (2 - 1/4, 0 + 1/2), the negative (-1/4, -1/2), and the virtual items stay as they are.
    """
    data = Positives(UserRows(np.array([0, 1, 1]), np.array([0], np.int32), None), 4)

    def prepare(state: Any, _private: Any) -> Any:
        item_factors = np.zeros((4, 2), np.float32)
        item_factors[0, 0] = 2.0
        return replace(state, item_factors=item_factors, denoisers=np.array([1], np.int32))

    finished = fit(
        data, prepare=prepare, num_factors=1, num_rounds=1, rho=1, denoisers=1, negatives=1, looks=1,
        user_steps=1, learning_rate=0.25, bias_pace=2.0, regularization=1.0,
    )  # fmt: skip
    (upload,), (noise,) = finished.sent(PairRows), finished.sent(Noise)
    rows = dict(zip(upload.message.items.values.tolist(), upload.message.gradients.values, strict=True))
    virtual = noise.message.items.values.tolist()
    (negative,) = {1, 2, 3} - set(virtual)
    slope = 1 / (1 + np.exp(1.0))
    np.testing.assert_allclose(rows[0], [-slope / 2, -slope], rtol=1e-6)
    np.testing.assert_allclose(rows[negative], [slope / 2, slope], rtol=1e-6)
    of_noise = sorted(row.tolist() for row in noise.message.gradients.values)
    assert of_noise == [[-0.25, -0.5], [0.25, 0.5]]
    for item, row in zip(virtual, noise.message.gradients.values, strict=True):
        np.testing.assert_array_equal(rows[item], row)
    (sums,) = finished.sent(DenoisingSums)
    assert sums.message.items.values.tolist() == virtual
    assert sums.message.counts.values.tolist() == [1, 1]
    expected = np.zeros((4, 2))
    expected[0], expected[negative] = [1.75, 0.5], [-0.25, -0.5]
    np.testing.assert_allclose(finished.state.item_factors, expected, atol=1e-6)


# --- Without loss --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values", [{}, {"num_items": 12}, {"negatives": 1}, {"looks": 1}, {"assignment": "random"}]
)
def test_virtual_pairs_leave_no_trace(values: dict[str, Any]) -> None:
    """Rho 0 without denoisers, rho 3 with one, rho 3 with five: the same model and the same vectors of users."""
    options = dict(values)
    data = some_positives(24, options.pop("num_items", 30))
    bare = fit(data, rho=0, denoisers=0, **options)
    for rho, denoisers in ((3, 1), (3, 5), (1, 12)):
        hidden = fit(data, rho=rho, denoisers=denoisers, **options)
        assert_same(hidden, bare)
        assert hidden.transcript.total(Noise).rows > 0


def test_with_few_clients_in_a_round_too() -> None:
    bare, hidden = (fit(some_positives(), rho=rho, denoisers=4, participation=0.5) for rho in (0, 3))
    assert_same(hidden, bare)
    everybody = fit(some_positives(), rho=3, denoisers=4)
    assert (everybody.state.item_factors != hidden.state.item_factors).any()


def test_noise_that_stays_in_changes_the_model() -> None:
    """Else the tests above could not fail."""
    bare, noisy = (fit(some_positives(), rho=rho, denoisers=0) for rho in (0, 3))
    assert (bare.state.item_factors != noisy.state.item_factors).any()


def test_a_lost_denoiser_takes_its_clients_with_it_and_no_noise_stays() -> None:
    """Whoever is left makes the same step as without virtual pairs."""
    lost = losing((2, fedrec_bpr.DenoiserFactors, 3))

    def named(state: Any, _private: Any) -> Any:
        return replace(state, denoisers=np.array([3, 7], np.int32))

    bare, hidden = (fit(some_positives(), rho=rho, denoisers=2, prepare=named, losses=lost) for rho in (0, 3))
    assert_same(hidden, bare)
    assert 3 not in hidden.state.denoisers
    assert len(hidden.state.denoisers) == 2


# --- What is learned -----------------------------------------------------------------------------------------


def two_tastes() -> tuple[Positives, Positives]:
    """Even users like even items, odd ones odd items, low numbers more than high ones; four each are withheld."""
    rng = np.random.default_rng(5)
    train, test = [], []
    for user in range(80):
        liked = np.arange(user % 2, 60, 2)
        chosen = rng.choice(liked, 14, replace=False, p=(weights := 1 / np.arange(3, 33)) / weights.sum())
        train.append(chosen[4:].tolist())
        test.append(chosen[:4].tolist())
    return positives(train, 60), positives(test, 60)


def test_lists_are_better_than_popularity() -> None:
    train, test = two_tastes()
    finished = fit(train, num_rounds=60, num_factors=8, rho=1, denoisers=2, learning_rate=0.05)
    popularity = np.bincount(train.rows.items, minlength=60).astype(np.float32)
    ours = ranking_metrics(finished.scorer.score, train.rows, test.rows, (5,))
    theirs = ranking_metrics(lambda users: np.tile(popularity, (len(users), 1)), train.rows, test.rows, (5,))
    assert ours["NDCG@5"] > 1.5 * theirs["NDCG@5"]


def test_clients_recommend_alone_and_newcomers_as_well() -> None:
    train, test = two_tastes()
    finished = fit(train, num_rounds=60, num_factors=8, rho=0, denoisers=0, learning_rate=0.05)
    users = np.arange(80, dtype=np.int32)
    alone = fedrec_bpr.SYSTEM.result.party(finished.private, finished.config, None)
    np.testing.assert_array_equal(alone.score(users), finished.scorer.score(users))
    starts = train.rows.starts
    newcomers = np.array(
        [finished.scorer.fold_in(train.rows.items[starts[u] : starts[u + 1]], None) for u in range(80)]
    )
    known, new = (
        ranking_metrics(score, train.rows, test.rows, (5,))["NDCG@5"]
        for score in (finished.scorer.score, lambda users: newcomers[users])
    )
    assert new > 0.9 * known


# --- The protocol --------------------------------------------------------------------------------------------


def test_golden_transcript() -> None:
    assert digest(fit(some_positives(6, 20), num_factors=3, num_rounds=2, rho=2, denoisers=2)) == GOLDEN


def test_bytes_of_uploads_are_known_before() -> None:
    finished = fit(some_positives(), num_rounds=1, denoisers=0, rho=2)
    told = fedrec_bpr.upload_bytes(finished.private, finished.config)
    assert int(told.sum()) == 4 * (1 + 6) * finished.transcript.total(PairRows).rows


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rho": -1}, "--rho -1 is not within 0 to 10000"),
        ({"negatives": 0}, "--negatives"),
        ({"looks": 0}, "--looks"),
        ({"user_steps": 0}, "--user-steps"),
        ({"regularization": 0.0}, "--regularization"),
        ({"bias_pace": 0.0}, "--bias-pace"),
        ({"participation": 0.0}, "--participation 0.0 is not in"),
        ({"denoisers": -1}, "--denoisers"),
    ],
)
def test_settings_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HushrecError, match=message):
        fedrec_bpr.SYSTEM.configure(values)

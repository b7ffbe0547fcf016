"""A total budget means it: noise is calibrated to the releases of a run, and no larger than it must be."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from deploy.federation import Federation, in_process, small, split_for
from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError
from hushrec.privacy.ledger import Ledger, Release, calibrated, epsilon_of_gaussian
from hushrec.protocol import Answer, Ask
from hushrec.registry import SYSTEMS
from hushrec.runs.record import read_run
from hushrec.systems.fedcore.gaussian import gaussian_rows
from hushrec.systems.fedcore.partners import Partnership, Privatizer
from hushrec.systems.fedcore.system import TakeStep
from systems.partner_runs import partners, watched

pytest.importorskip("dp_accounting")

FEDCORE = SYSTEMS["fedcore"]
KEY = Draws(0).key("noise")


def delta_of_gaussian(multiplier: float, count: int, epsilon: float) -> float:
    """Balle and Wang 2018: by hand, for as many releases, which are one that is sqrt(count) times as exact."""
    shift = math.sqrt(count) / multiplier
    return float(
        norm.cdf(shift / 2 - epsilon / shift) - math.exp(epsilon) * norm.cdf(-shift / 2 - epsilon / shift)
    )


@pytest.mark.parametrize(("count", "epsilon", "delta"), [(1, 1.0, 1e-5), (50, 8.0, 1e-5), (700, 2.0, 1e-6)])
def test_gaussian_noise_is_what_the_closed_form_asks_for(count: int, epsilon: float, delta: float) -> None:
    release = calibrated("gaussian", count, epsilon, delta, "rating")
    assert delta_of_gaussian(release.multiplier, count, epsilon) <= delta
    assert delta_of_gaussian(0.999 * release.multiplier, count, epsilon) > delta
    assert epsilon * (1 - 1e-3) < Ledger([release]).total(delta) <= epsilon
    assert delta_of_gaussian(release.multiplier, 1, release.epsilon) == pytest.approx(delta, rel=1e-6)


def test_the_epsilon_of_gaussian_noise_by_renyi_divergence() -> None:
    """RDP by hand: a / (2 z^2) per release, converted as Canonne, Kamath and Steinke do (2020, Prop. 12). An upper
    bound, and near: that the accountant is below it, and not far.
    """
    release, count = Release("gaussian", 1.0, 50, "rating", 4.2444), 50
    orders = np.linspace(1.01, 60, 20_000)
    bound = orders * count / (2 * 4.2444**2)
    bound += np.log1p(-1 / orders) - (math.log(1e-5) + np.log(orders)) / (orders - 1)
    total = Ledger([release]).total(1e-5)
    assert total < bound.min() < 1.1 * total
    assert total == pytest.approx(epsilon_of_gaussian(4.2444 / math.sqrt(50), 1e-5), rel=1e-4)


@pytest.mark.parametrize(("count", "epsilon"), [(1, 2.0), (50, 8.0), (3, 1500.0)])
def test_laplace_noise_fills_the_budget_and_not_more(count: int, epsilon: float) -> None:
    release = calibrated("laplace", count, epsilon, 1e-5, "rating")
    total = Ledger([release]).total(1e-5)
    assert epsilon * (1 - 1e-3) < total <= epsilon
    assert release.epsilon >= epsilon / count * (1 - 1e-3), "never worse than the plain sum"


# --- Runs --------------------------------------------------------------------------------------------------


def promised(**values: Any) -> tuple[dict[str, float], dict[str, int]]:
    """What a run of 2 rounds promises, and the most rows that a rating and a user were in, counted in the batches.

    a has 12 ratings and b 5. Batches of 4 make 3 steps a round, so b goes through its ratings up to three times.
    """
    many = {f"u{number}": {f"p{number % 4}": 3.0, f"q{number % 3}": 2.0} for number in range(6)}
    ratings = partners(a=many, b={f"u{number}": {"p1": 4.0} for number in range(5)})
    of_rating: Counter[tuple[int, int]] = Counter()
    of_user: Counter[tuple[int, int]] = Counter()

    def look(private: Partnership, ask: Ask, _answer: Answer) -> None:
        if isinstance(ask.request, TakeStep):
            for number, partner in enumerate(private.partners):
                for place in partner.pending.places:
                    of_rating[number, int(place)] += int(partner.common_users[partner.users[place]] >= 0)
                for user in partner.pending.release.users.tolist():
                    of_user[number, user] += 1

    finished = watched(ratings, look, num_rounds=2, batch_size=4, **values)
    promises = dict(FEDCORE.result.promises(finished.private, finished.config))
    return promises, {"rating": max(of_rating.values()), "user": max(of_user.values())}


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("unit", ["rating", "user"])
@pytest.mark.parametrize("privatizer", ["none", "dp"])
def test_the_total_of_a_run_is_within_its_budget(mechanism: str, unit: str, privatizer: str) -> None:
    """With noise whatever the privatiser; the releases that are counted are at least those that there were."""
    promises, most = promised(mechanism=mechanism, protects=unit, privatizer=privatizer, epsilon_total=3.0)
    total, count = promises["epsilon of these together, delta 1e-05"], promises[f"releases that one {unit} is in"]
    assert 2.99 <= total <= 3.0
    assert 0 < promises["epsilon of one release"] < total
    assert most[unit] <= count <= 12


@pytest.mark.parametrize("mechanism", ["auto", "laplace"])
def test_noise_is_what_the_budget_says(mechanism: str) -> None:
    """b's ratings are in 6 rows each, a's in 2: both get noise by their own count. Without more said, it is
    Gaussian, of rows that are clipped to 0.002.
    """
    ratings = partners(
        a={f"u{number}": {f"p{number % 4}": 3.0, f"q{number % 3}": 2.0} for number in range(6)},
        b={f"u{number}": {"p1": 4.0} for number in range(5)},
    )
    values = {"num_rounds": 2, "batch_size": 4, "epsilon_total": 3.0, "mechanism": mechanism}
    found: dict[int, set[Any]] = {0: set(), 1: set()}

    def look(private: Partnership, ask: Ask, _answer: Answer) -> None:
        if isinstance(ask.request, TakeStep):
            for partner in private.partners:
                found[partner.number].add(FEDCORE.configure(values).training_of(partner, 3, 1).privatizer)

    watched(ratings, look, **values)
    kind: Any = "gaussian" if mechanism == "auto" else "laplace"
    for number, count in ((0, 2), (1, 6)):
        noise = calibrated(kind, count, 3.0, 1e-5, "rating in its own gradients").noise
        assert found[number] == {Privatizer(True, 0.002, noise * 2 * 0.002, kind == "gaussian")}


def test_gaussian_noise_without_a_total_is_of_one_release() -> None:
    promises, _ = promised(mechanism="gaussian", privatizer="dp", epsilon=4.0)
    assert promises["epsilon of one release"] == pytest.approx(4.0, rel=1e-3)
    assert promises["epsilon of these together, delta 1e-05"] > 8


def test_what_a_budget_does_not_cover_is_refused_or_said() -> None:
    for values in ({"model": "neucf"}, {"inference": "ckks"}):
        with pytest.raises(
            HushrecError, match=r"epsilon_total=8.0 covers no .* use model='pmf' and inference='none'"
        ):
            FEDCORE.configure({"epsilon_total": 8.0, **values})
    config = FEDCORE.configure({"epsilon_total": 8.0})
    assert not config.serves_visitors
    [line] = FEDCORE.result.warnings(config)
    assert "PROTECTED IN PART" in line


def test_deployed_the_promise_is_told_too(tmp_path: Path) -> None:
    """Each partner calibrates by itself; the model has the bits of one process, the server is told the weakest."""
    config = small("fedcore", model="pmf", inference="none", epsilon_total=3.0, mechanism="gaussian")
    federation = Federation(tmp_path, 3, split_for("fedcore", 3), seed=3)
    ordered = federation.order("fedcore", config)
    assert ordered.drive().status == "done"
    expected = in_process("fedcore", config, split_for("fedcore", 3))
    ordered.assert_equals(expected)
    told = read_run(ordered.folder).folds[0].facts
    promises = FEDCORE.result.promises(expected.progress.private, FEDCORE.configure(config))
    assert told["epsilon of these together, delta 1e-05"] <= 3.0
    assert told == promises


# --- Gaussian noise ----------------------------------------------------------------------------------------


def test_rows_are_clipped_by_their_l2_norm() -> None:
    rows = np.array([[3, 4], [0.3, 0.4]], np.float32)
    zeros = gaussian_rows(np.zeros_like(rows), 1.0, 1e-3, KEY, 0, 1, 0)
    clipped = gaussian_rows(rows, 1.0, 1e-3, KEY, 0, 1, 0) - zeros
    np.testing.assert_allclose(clipped, [[0.6, 0.8], [0.3, 0.4]], atol=1e-6)


def test_noise_is_normal_and_each_draw_its_own() -> None:
    """Kolmogorov and Smirnov, 40,000 numbers; false alarm below 1e-6 with a seed that is fixed (D < 0.0136)."""
    zeros = np.zeros((2000, 20), np.float32)
    noise = np.sort(gaussian_rows(zeros, 1.0, 2.0, KEY, 3, 1, 0).ravel() / 2.0)
    places = np.arange(noise.size + 1) / noise.size
    expected = norm.cdf(noise)
    assert max(np.abs(expected - places[:-1]).max(), np.abs(expected - places[1:]).max()) < 0.0136
    whole = gaussian_rows(zeros, 1.0, 2.0, KEY, 3, 1, 0)
    np.testing.assert_array_equal(gaussian_rows(zeros[:3], 1.0, 2.0, KEY, 3, 1, 37 * 20), whole[37:40])
    for other in ((4, 1), (3, 2)):
        assert (gaussian_rows(zeros[:3], 1.0, 2.0, KEY, *other, 0) != whole[:3]).mean() > 0.99


def test_bad_rows_and_bad_noise_are_refused() -> None:
    with pytest.raises(DivergedError, match="not finite"):
        gaussian_rows(np.array([[np.nan]], np.float32), 1.0, 1.0, KEY, 0, 1, 0)
    for clip, deviation in ((0.0, 1.0), (1.0, 0.0), (1.0, math.inf)):
        with pytest.raises(HushrecError, match="above 0 and finite"):
            gaussian_rows(np.ones((1, 1), np.float32), clip, deviation, KEY, 0, 1, 0)

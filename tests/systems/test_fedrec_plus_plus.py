from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from benchmarks.reference import Client, reference_run
from numpy.typing import NDArray

from hushrec import settings
from hushrec.data import synthetic
from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError
from hushrec.kernels.rows import FRACTION_BITS
from hushrec.privacy import denoising
from hushrec.privacy.filling import list_items
from hushrec.protocol import Role
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, run_job
from hushrec.systems import fedrec
from hushrec.systems.fedrec_plus_plus import Config, DenoiserFactors, DenoisingSums, ItemFactors, Noise

from .runs import HAND_WORKED, Finished, assert_same, digest, hand_worked, losing, run, some_ratings, table

GOLDEN = "93d5d187feb6e9727fb8c52d6e8cfdb3c9d700a03b43e913a8594765a9daad37"
SHORT = {"predict_after": 3, "local_steps": 3, "num_rounds": 8}


def test_hand_worked_round() -> None:
    """User 1 denoises for user 0. rho = 1, filled with the mean, gamma = 1/4, lambda = 1/2, U = V = (1, 2).

    Errors: user 0 on its rated item 0: 1 - 4 = -3, on the virtual item 1: 2 - 4 = -2. User 1: -3 and 4 - 3 = 1.
    U_0, on item 0 only: -3 + 1/2 = -2.5, so 1.625. U_1: (-3 + 2) / 2 + 1 = 1/2, so 1.875.
    User 0 uploads -3 + 1/2 = -2.5 and -2 + 1 = -1, and sends -1 as its noise on item 1.
    User 1's own gradients are -3*2 + 1/2 = -5.5 and 1*2 + 1 = 3, so its sums are 0 + 5.5 (count 0 - 1) and
    -1 - 3 = -4 (count 1 - 1).
    V_0: (-2.5 - 5.5) / (1 + 1) = -4, so 2. V_1: (-1 + 4) / (1 - 0) = 3, so 1.25. As PMF.
    """
    finished = hand_worked("fedrec++", rho=1, filling="average", regularization=0.5)
    assert finished.user_factors.ravel().tolist() == [1.625, 1.875]
    assert finished.item_factors.ravel().tolist() == [2.0, 1.25]
    (upload,), (noise,), (sums,) = (finished.sent(kind) for kind in (fedrec.ItemGradients, Noise, DenoisingSums))
    assert upload.message.items.values.tolist() == [0, 1]
    assert upload.message.gradients.values.ravel().tolist() == [-2.5, -1.0]
    assert (noise.message.items.values.tolist(), noise.addressees.tolist()) == ([1], [1])
    assert noise.message.gradients.values.tolist() == [[-1.0]]
    assert sums.message.items.values.tolist() == [0, 1]
    assert (sums.message.sums.values.ravel() / 2**FRACTION_BITS).tolist() == [5.5, -4.0]
    assert sums.message.counts.values.tolist() == [-1, 0]


def test_hand_worked_prediction() -> None:
    """FedRec's hand-worked U' V_1 = 4.03125 is the virtual rating: the noise is (2 - 4.03125) + 1 = -1.03125, and
    the result is the same all the same.
    """
    finished = hand_worked("fedrec++", rho=1, predict_after=-1, local_steps=2, regularization=0.5)
    (noise,) = finished.sent(Noise)
    assert noise.message.gradients.values.tolist() == [[-1.03125]]
    assert finished.item_factors.ravel().tolist() == [2.0, 1.25]


def test_hand_worked_round_with_biases() -> None:
    """User 1 denoises for user 0. rho = 1, filled with the mean, gamma = 1/4, lambda = 1/2, s = 1. U = (1, 2) with
    biases of (1, 0), V = (1, 2) with biases of (1, 0); ratings are as they are, as nobody knows their scale.

    Errors: user 0 on its rated item 0: 1 + 1 + 1 - 4 = -1, on the virtual item 1: 2 + 1 + 0 - 4 = -1.
    User 1: 2 + 0 + 1 - 5 = -2 and 4 + 0 + 0 - 3 = 1.
    U_0: (-1 + 1/2 + 1) / (1 + 1) = 1/4, so 0.9375; its bias: (-1 + 1) / 2 = 0, so 1.
    U_1: (-2 + 2 + 2 (1/2) 2 + 2) / (2 + 1) = 4/3, so 5/3; its bias: (-2 + 1) / 3, so 1/12.
    User 0 uploads (-1 + 1/2, -1) and (-1 + 1, -1), of which the second is its noise.
    User 1's own gradients are (-4 + 1/2, -2) and (2 + 1, 1). Without noise V_0 gets (-4, -3) from 2 clients and
    V_1 (3, 1) from 1. The level is (2/3 1 + 1/2 0) / (2/3 + 1/2) = 4/7.
    V_0: (-4 + 1) / 3 = -1, so 5/4, and (-3 + 3/7) / 3 = -6/7, so 17/14. V_1: (3 + 2) / 2, so 11/8, and
    (1 - 4/7) / 2 = 3/14, so -3/56.
    """

    def prepare(state: Any, private: Any) -> Any:
        private.user_factors[:] = [[1, 1], [2, 0]]
        return replace(state, item_factors=np.array([[1, 1], [2, 0]], np.float32))

    finished = run(
        "fedrec++", HAND_WORKED, num_factors=1, num_rounds=1, learning_rate=0.25, who_denoises=[1],
        prepare=prepare, cohort_size=2, rho=1, filling="average", regularization=0.5, biases=True, shrinkage=1.0,
    )  # fmt: skip
    (upload,), (noise,), (sums,) = (finished.sent(kind) for kind in (fedrec.ItemGradients, Noise, DenoisingSums))
    assert upload.message.gradients.values.tolist() == [[-0.5, -1], [0, -1]]
    assert noise.message.gradients.values.tolist() == [[0, -1]]
    assert (sums.message.sums.values / 2**FRACTION_BITS).tolist() == [[3.5, 2], [-3, -2]]
    np.testing.assert_allclose(finished.user_factors, [[0.9375, 1], [5 / 3, 1 / 12]], rtol=1e-6)
    np.testing.assert_allclose(finished.item_factors, [[5 / 4, 17 / 14], [11 / 8, -3 / 56]], rtol=1e-6)


# --- Lossless ----------------------------------------------------------------------------------------------

BIASED = {"biases": True, "shrinkage": 3.0, "regularization": 0.07, "decay": 1.0}


@pytest.mark.parametrize("update", ["simultaneous", "sequential"])
@pytest.mark.parametrize(("rho", "denoisers"), [(1, 1), (3, 1), (3, 3), (2, 12)])
def test_lossless_with_biases(rho: int, denoisers: int, update: str) -> None:
    """As PMF, too, where that has the same order of updates."""
    ratings = some_ratings()
    clean = run("fedrec", ratings, rho=0, update=update, **BIASED, **SHORT)
    assert_same(run("fedrec++", ratings, rho=rho, denoisers=denoisers, update=update, **BIASED, **SHORT), clean)
    if update == "simultaneous":
        assert_same(run("pmf", ratings, num_rounds=SHORT["num_rounds"], **BIASED), clean)


@pytest.mark.parametrize("participation", [0.2, 0.6])
def test_lossless_with_biases_and_partial_participation(participation: float) -> None:
    common = {"participation": participation, "denoisers": 3, **BIASED, **SHORT}
    clean, hidden = (run("fedrec++", some_ratings(), rho=rho, **common) for rho in (0, 3))
    assert_same(hidden, clean)


def test_what_biases_learn_is_worth_more_than_means() -> None:
    """Ratings with a bias of each user and item, one in eight withheld. The error is about that of a regression on
    all biases at once, which is below that of each item's mean, and of each user's, by more than a tenth.
    """
    draws = np.random.default_rng(0)
    users, items = (column.ravel() for column in np.indices((60, 40)))
    rated = 3 + draws.normal(0, 0.5, 60)[users] + draws.normal(0, 0.5, 40)[items] + draws.normal(0, 0.3, 2400)
    place, is_test = draws.permutation(2400), np.arange(2400) < 300
    test, train = place[is_test], np.sort(place[~is_test])
    per_user = [
        dict(zip(items[mine].tolist(), rated[mine].tolist(), strict=True))
        for mine in (train[users[train] == user] for user in range(60))
    ]
    model = run("fedrec++", table(per_user, 40), num_rounds=60, **BIASED).scorer

    def error(guess: np.ndarray) -> float:
        return float(np.sqrt(((guess - rated[test]) ** 2).mean()))

    design = np.zeros((2400, 100))
    design[np.arange(2400), users] = design[np.arange(2400), 60 + items] = 1
    fitted = np.linalg.lstsq(design[train], rated[train], rcond=None)[0]
    user_means = np.bincount(users[train], rated[train]) / np.bincount(users[train])
    item_means = np.bincount(items[train], rated[train]) / np.bincount(items[train])
    ours = error(model.predict(users[test].astype(np.int32), items[test].astype(np.int32)))
    assert ours < 1.05 * error(design[test] @ fitted)
    assert ours < 0.9 * min(error(user_means[users[test]]), error(item_means[items[test]]))


def test_what_nobody_knows_is_said_with_what_is_known() -> None:
    """User 3 has no rating and is told the items' levels; item 3 has none and gets each user's own."""
    ratings = table([{0: 4.0, 1: 2.0}, {0: 5.0, 1: 3.0, 2: 4.0}, {1: 1.0}, {}], num_items=4)
    finished = run("fedrec++", ratings, rho=1, num_rounds=50, **BIASED)
    model, (users, items) = finished.scorer, (column.astype(np.int32).ravel() for column in np.indices((4, 4)))
    predicted = model.predict(users, items).reshape(4, 4)
    assert not model.user_factors[3].any()
    assert not model.item_factors[3, :-1].any()
    np.testing.assert_array_equal(predicted[3], model.item_factors[:, -1])
    level = model.item_factors[3, -1]
    assert model.item_factors[:3, -1].min() < level < model.item_factors[:3, -1].max()
    np.testing.assert_allclose(predicted[:, 3], level + model.user_factors[:, -1], rtol=1e-6)


@pytest.mark.parametrize("update", ["simultaneous", "sequential"])
@pytest.mark.parametrize("denoisers", [1, 3, 12])
@pytest.mark.parametrize("rho", [1, 2, 3])
def test_lossless_to_the_last_bit(rho: int, denoisers: int, update: str) -> None:
    ratings = some_ratings()
    clean = run("fedrec", ratings, rho=0, update=update, **SHORT)
    assert_same(run("fedrec++", ratings, rho=rho, denoisers=denoisers, update=update, **SHORT), clean)


@pytest.mark.parametrize("denoisers", [1, 3, 12])
@pytest.mark.parametrize("participation", [0.2, 0.6])
def test_lossless_with_partial_participation(participation: float, denoisers: int) -> None:
    """Who takes part depends on who denoises, so runs with the same denoisers are compared."""
    ratings, common = some_ratings(), {"participation": participation, "denoisers": denoisers, **SHORT}
    clean = run("fedrec++", ratings, rho=0, **common)
    for rho in (1, 3):
        finished = run("fedrec++", ratings, rho=rho, **common)
        assert_same(finished, clean)
    assert (finished.states[-1].counted_round < 8).any()


def test_lossless_with_virtual_items_drawn_once_and_with_threads() -> None:
    ratings = some_ratings()
    clean = run("fedrec", ratings, rho=0, **SHORT)
    assert_same(run("fedrec++", ratings, rho=3, denoisers=3, resample="once", **SHORT), clean)
    assert_same(run("fedrec++", ratings, rho=3, denoisers=3, filling="average", **SHORT), clean)
    assert_same(run("fedrec++", ratings, rho=3, denoisers=3, threads=2, cohort_size=1, **SHORT), clean)


@pytest.mark.parametrize("values", [{}, {"biases": True}, {"update": "sequential"}, {"shares": 2}])
def test_lossless_with_virtual_ratings_drawn_from_the_clients_own(values: dict[str, Any]) -> None:
    hidden = {"rho": 3, "denoisers": 3, "filling": "drawn", **SHORT, **values}
    plain = {"rho": 0, **SHORT, **{name: value for name, value in values.items() if name != "shares"}}
    assert_same(run("fedrec++", some_ratings(), **hidden), run("fedrec", some_ratings(), **plain))


def test_lossless_with_one_shared_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with so many items and denoisers that threads cannot each have a table of noise."""
    monkeypatch.setattr(denoising, "_OWN_TABLE_BYTES", 1)
    ratings = some_ratings()
    shared = run("fedrec++", ratings, rho=3, denoisers=5, threads=2, cohort_size=1, **SHORT)
    assert_same(shared, run("fedrec", ratings, rho=0, **SHORT))


def test_without_denoisers_the_noise_stays_in() -> None:
    """And still U_u learns from rated items only, which FedRec's does not: they differ from the first round on."""
    ratings = some_ratings()
    noisy = run("fedrec++", ratings, rho=1, denoisers=0, **SHORT)
    assert (noisy.item_factors != run("fedrec", ratings, rho=0, **SHORT).item_factors).any()
    one_round, fedrec_round = (
        run(name, ratings, rho=1, num_rounds=1, **more)
        for name, more in (("fedrec++", {"denoisers": 0}), ("fedrec", {}))
    )
    np.testing.assert_array_equal(one_round.item_factors, fedrec_round.item_factors)
    assert (one_round.user_factors != fedrec_round.user_factors).any(axis=1).all()
    clean = run("fedrec", ratings, rho=0, num_rounds=1)
    np.testing.assert_array_equal(one_round.user_factors, clean.user_factors)
    assert not noisy.sent(Noise)


@pytest.mark.parametrize("participation", [0.5, 1.0])
@pytest.mark.parametrize("rho", [1, 3])
def test_without_denoisers_and_with_fedrecs_user_update_it_is_fedrec(rho: int, participation: float) -> None:
    """The paper's "reduces to FedRec", to the last bit; and FedRec with Eq. 7 is FedRec++ without denoisers."""
    ratings, common = some_ratings(), {"rho": rho, "participation": participation, **SHORT}
    reduced = run("fedrec++", ratings, denoisers=0, user_update="rated-and-virtual", **common)
    assert_same(reduced, run("fedrec", ratings, **common))
    noisy = run("fedrec++", ratings, denoisers=0, **common)
    assert_same(run("fedrec", ratings, user_update="rated", **common), noisy)
    assert (noisy.item_factors != reduced.item_factors).any()


@pytest.mark.parametrize("participation", [0.5, 1.0])
@pytest.mark.parametrize("denoisers", [1, 3, 12])
def test_lossless_where_denoisers_are_drawn_at_random(denoisers: int, participation: float) -> None:
    """Whoever takes the noise out: the same bits as where clients are dealt evenly."""
    ratings, common = some_ratings(), {"denoisers": denoisers, "participation": participation, **SHORT}
    dealt = run("fedrec++", ratings, rho=2, **common)
    drawn = run("fedrec++", ratings, rho=2, assignment="random", **common)
    assert_same(drawn, dealt)
    if denoisers == 12:
        loads = [len(clients) for clients in assigned(drawn, 1).values()]
        assert max(loads) > 1


@dataclass
class RatedItems:
    starts: NDArray[np.int64]
    items: NDArray[np.int32]
    num_items: int


def as_the_library_draws(
    client: Client, num_items: int, rho: int, draws: Draws, drawn_in: int
) -> NDArray[np.int32]:
    """Without denoisers the result depends on the virtual items, so the reference must get the same ones."""
    rated = RatedItems(np.array([0, len(client.items)]), client.items, num_items)
    number, key = np.array([client.number], np.int32), draws.key("virtual-items")
    listing = list_items(rated, np.zeros(1, np.int64), number, rho, key, drawn_in)
    return listing.items[listing.rated_place < 0]


@pytest.mark.parametrize(
    "values",
    [
        {"rho": 0, "denoisers": 0},
        {"rho": 2, "denoisers": 3},
        {"rho": 2, "denoisers": 0},
        {"rho": 1, "denoisers": 0, "filling": "average", "resample": "once"},
        {"rho": 3, "denoisers": 2, "participation": 0.5},
        {"rho": 2, "denoisers": 0, "participation": 0.5},
        {"rho": 2, "denoisers": 0, "participation": 0.5, "predict_after_counts": "all"},
        {"rho": 2, "denoisers": 0, "user_update": "rated-and-virtual"},
        {"rho": 2, "denoisers": 5, "assignment": "random", "user_update": "rated-and-virtual"},
        {"rho": 1, "denoisers": 0, "update": "sequential"},
    ],
)
def test_equals_the_plain_reference(values: dict[str, Any]) -> None:
    """Algorithms 1 and 2 in float64, one client after the other; 16 rounds reach the range of ratings."""
    ratings, values = (
        some_ratings(),
        {**values, "num_rounds": 16, "predict_after": 6, "local_steps": 3, "learning_rate": 0.5},
    )
    finished = run("fedrec++", ratings, **values)
    config = settings.build(Config, {"num_factors": 5, **values})
    user_factors, item_factors = reference_run(
        ratings.rows, ratings.num_users, ratings.num_items, config, Draws(0), as_the_library_draws
    )
    assert np.abs(user_factors @ item_factors.T).max() > 2
    np.testing.assert_allclose(finished.user_factors, user_factors, rtol=1e-3, atol=2e-4)
    np.testing.assert_allclose(finished.item_factors, item_factors, rtol=1e-3, atol=2e-4)


# --- Who is lost -------------------------------------------------------------------------------------------


def assert_equals_a_run_of_those_counted(finished: Finished, num_rounds: int) -> None:
    """The oracle: FedRec without virtual items in which, per round, exactly those answer whose update counted."""
    counted = [state.counted_round for state in finished.states]
    left_out = [
        (number, fedrec.ItemFactors, int(client))
        for number in range(1, num_rounds + 1)
        for client in np.flatnonzero(counted[number] != number)
    ]
    clean = run("fedrec", some_ratings(), rho=0, num_rounds=num_rounds, losses=losing(*left_out))
    for one, other in zip(finished.states, clean.states, strict=True):
        np.testing.assert_array_equal(one.item_factors, other.item_factors)
    np.testing.assert_array_equal(finished.user_factors, clean.user_factors)


def assigned(finished: Finished, round_number: int) -> dict[int, list[int]]:
    """Clients by denoiser, as the first requests of a round said."""
    clients: dict[int, list[int]] = {}
    seen = set()
    for sent in finished.sent(ItemFactors, round_number):
        for number, denoiser in zip(sent.numbers.tolist(), sent.message.denoiser.tolist(), strict=True):
            if number not in seen:
                clients.setdefault(denoiser, []).append(number)
                seen.add(number)
    return clients


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("who_denoises", [[4], [4, 9, 11]])
def test_a_denoiser_lost_once(who_denoises: list[int], threads: int) -> None:
    """Denoiser 4 does not send its sums in round 2: its clients and itself are left out of that round, all of it
    and nothing else, and another client denoises in its place.
    """
    finished = run(
        "fedrec++",
        some_ratings(),
        rho=2,
        denoisers=len(who_denoises),
        who_denoises=who_denoises,
        threads=threads,
        losses=losing((2, DenoiserFactors, 4)),
    )
    left_out = sorted([4, *assigned(finished, 2)[4]])
    assert np.flatnonzero(finished.states[2].counted_round != 2).tolist() == left_out
    assert len(left_out) == (24 if len(who_denoises) == 1 else 8)
    assert 4 not in finished.states[2].denoisers
    assert len(finished.states[2].denoisers) == len(who_denoises)
    assert (finished.states[4].counted_round == 4).all()
    assert_equals_a_run_of_those_counted(finished, 4)


@pytest.mark.parametrize("who_denoises", [[4], [4, 9, 11]])
def test_a_denoiser_lost_for_good(who_denoises: list[int]) -> None:
    """Client 4 is never heard of again from round 2 on, in whatever role."""
    finished = run(
        "fedrec++",
        some_ratings(),
        rho=2,
        denoisers=len(who_denoises),
        who_denoises=who_denoises,
        losses=lambda number, _request, to: (to == 4) & (number >= 2),
    )
    counted = finished.states[-1].counted_round
    assert counted[4] == 1
    assert (np.delete(counted, 4) == 4).sum() > 10
    assert_equals_a_run_of_those_counted(finished, 4)


def test_all_denoisers_lost() -> None:
    """Nobody takes the noise out, so nobody counts: V and U stay, and the next round goes on."""
    finished = run(
        "fedrec++",
        some_ratings(),
        rho=1,
        denoisers=3,
        losses=lambda number, request, to: np.full(len(to), number == 2 and request is DenoiserFactors),
    )
    np.testing.assert_array_equal(finished.states[2].item_factors, finished.states[1].item_factors)
    assert (finished.states[2].counted_round == 1).all()
    assert (finished.states[4].counted_round == 4).all()
    assert_equals_a_run_of_those_counted(finished, 4)


def test_denoisers_lost_one_after_the_other() -> None:
    """Denoiser 4 at the first attempt of round 2, denoiser 9 at the second, when the round was begun again."""
    attempts = []

    def losses(number: int, request: type, to: np.ndarray) -> np.ndarray:
        if number != 2 or request is not DenoiserFactors:
            return np.zeros(len(to), bool)
        attempts.append(to.tolist())
        return to == (4, 9, -1)[len(attempts) - 1]

    finished = run("fedrec++", some_ratings(), rho=2, denoisers=3, who_denoises=[4, 9, 11], losses=losses)
    assert attempts == [[4, 9, 11], [9, 11], [11]]
    clients = assigned(finished, 2)
    left_out = sorted([4, 9, *clients[4], *clients[9]])
    assert np.flatnonzero(finished.states[2].counted_round != 2).tolist() == left_out
    assert_equals_a_run_of_those_counted(finished, 4)


def test_ordinary_clients_lost() -> None:
    """They are left out with their noise; a denoiser whose clients are all lost is left out too, since nothing
    would hide its own gradients.
    """
    first = run("fedrec++", some_ratings(), rho=2, denoisers=12)
    alone, some = assigned(first, 2), [one for one in range(24) if one not in first.states[1].denoisers][:1]
    assert all(len(clients) == 1 for clients in alone.values())
    denoiser = next(denoiser for denoiser, clients in alone.items() if clients == some)
    finished = run(
        "fedrec++", some_ratings(), rho=2, denoisers=12, losses=losing(*((2, ItemFactors, one) for one in some))
    )
    assert np.flatnonzero(finished.states[2].counted_round != 2).tolist() == sorted([denoiser, *some])
    assert_equals_a_run_of_those_counted(finished, 4)


def test_ordinary_clients_and_their_denoiser_lost_together() -> None:
    finished = run(
        "fedrec++",
        some_ratings(),
        rho=2,
        denoisers=3,
        who_denoises=[4, 9, 11],
        losses=losing((2, DenoiserFactors, 4), (2, ItemFactors, 0), (2, ItemFactors, 20), (3, ItemFactors, 1)),
    )
    assert {0, 4, 20} <= set(np.flatnonzero(finished.states[2].counted_round != 2).tolist())
    assert_equals_a_run_of_those_counted(finished, 4)


def test_lost_at_the_end_the_model_holds_what_counted() -> None:
    """Denoiser 4 is lost in the last round and nobody hears the last `Settle`: the vectors that the model takes
    are those that counted all the same.
    """
    finished = run(
        "fedrec++",
        some_ratings(),
        rho=2,
        denoisers=3,
        who_denoises=[4, 9, 11],
        losses=lambda number, request, to: (
            (to == 4) & (number == 4) & (request is DenoiserFactors) | (request is fedrec.Settle)
        ),
    )
    assert (finished.states[4].counted_round == 3).any()
    assert_equals_a_run_of_those_counted(finished, 4)


# --- What is refused, what is seen -------------------------------------------------------------------------


def test_more_denoisers_than_half_are_refused() -> None:
    with pytest.raises(HushrecError, match=r"13 denoisers for 24 clients .* denoisers=12 or less"):
        run("fedrec++", some_ratings(), denoisers=13)
    with pytest.raises(HushrecError, match="denoisers= must not be below 0"):
        run("fedrec++", some_ratings(), denoisers=-1)


def test_the_server_sees_no_noise_and_denoisers_no_uploads() -> None:
    transcript = run("fedrec++", some_ratings(), denoisers=3).transcript
    by_role = {role: {type(one.message) for one in transcript.seen_by(role)} for role in Role}
    assert Noise not in by_role[Role.SERVER]
    assert by_role[Role.DENOISER] == {Noise, DenoiserFactors, DenoisingSums}


def test_a_denoiser_is_asked_after_its_clients() -> None:
    """A denoiser without noise would show its own gradients; only half of a round's participants denoise."""
    finished = run("fedrec++", some_ratings(), rho=1, denoisers=12, participation=0.3, num_rounds=6)
    for number in range(1, 7):
        addressees = {int(one) for sent in finished.sent(Noise, number) for one in sent.addressees}
        asked = {int(one) for sent in finished.sent(DenoiserFactors, number) for one in sent.numbers}
        assert asked == addressees
        assert asked


def test_a_diverging_denoiser_is_refused() -> None:
    """User 1 denoises and has a rating of 1e6, so that its own gradient is far out of range: in fixed point it
    would wrap, and V be wrong in silence.
    """
    ratings = table([{0: 4.0}, {0: 5.0, 1: 1e6}, {0: 3.0}], num_items=2)

    def prepare(state: Any, private: Any) -> Any:
        private.user_factors[:] = 1
        return state

    with pytest.raises(DivergedError, match=r"^round 1: the update of client 1 is not finite or not within ±2048"):
        run("fedrec++", ratings, num_factors=1, num_rounds=1, rho=1, who_denoises=[1], prepare=prepare)


def test_golden_transcript() -> None:
    finished = run(
        "fedrec++", some_ratings(6, 20), num_factors=3, num_rounds=2, rho=1, predict_after=0, local_steps=2
    )
    assert digest(finished) == GOLDEN


def test_lossless_where_the_local_steps_explode() -> None:
    """With these data U' leaves every bound at the default settings; what it predicts must not matter."""
    data = synthetic(num_users=200, num_items=100, num_ratings=5000)
    jobs = [
        Job(SYSTEMS["fedrec++"], settings.build(Config, {"rho": rho, "num_rounds": 12}), 0, data)
        for rho in (0, 1, 3)
    ]
    finished = [run_job(job, RuntimeOptions(threads=1)) for job in jobs]
    for other in finished[1:]:
        np.testing.assert_array_equal(other.state.item_factors, finished[0].state.item_factors)
        np.testing.assert_array_equal(other.private.user_factors, finished[0].private.user_factors)


@pytest.mark.slow
def test_lossless_at_the_size_of_nf5k5k() -> None:
    """5,000 users, 5,000 items, 7,944,473 ratings; most clients list the whole catalogue at rho 3. Two rounds with
    means, two with predictions.
    """
    data = synthetic(num_users=5000, num_items=5000, num_ratings=7_944_473)
    values = {"num_rounds": 4, "predict_after": 1, "local_steps": 15, "learning_rate": 1.0, "denoisers": 1}
    clean, noisy = (
        run_job(
            Job(SYSTEMS["fedrec++"], settings.build(Config, {**values, "rho": rho}), 0, data),
            RuntimeOptions(threads=2),
        )
        for rho in (0, 3)
    )
    np.testing.assert_array_equal(noisy.state.item_factors, clean.state.item_factors)
    np.testing.assert_array_equal(noisy.private.user_factors, clean.private.user_factors)
    assert np.abs(clean.state.item_factors).max() > 0.02  # from 0.005: it has learned something


def test_one_participant_is_too_few_for_a_denoiser() -> None:
    """Two are drawn instead, so that the model learns."""
    ratings = some_ratings()
    finished = run("fedrec++", ratings, denoisers=1, participation=0.01, num_rounds=3)
    assert finished.sent(ItemFactors)

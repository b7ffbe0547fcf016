"""FedRec++ and FedRec-BPR with shares: the same bits, whoever is lost, wherever it runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.federation import Federation, Wire, in_process, small, split_for
from hushrec.data import k_folds, load
from hushrec.draws import Draws
from hushrec.errors import DivergedError, HushrecError
from hushrec.kernels.rows import FRACTION_BITS
from hushrec.privacy.shared_denoising import (
    FactorsToShare,
    MaskedGradients,
    MaskShare,
    SendShareSums,
    SummedShares,
    assign_shares,
)
from hushrec.protocol import Cohort, Ragged, Role
from hushrec.registry import SYSTEMS
from hushrec.systems import fedrec
from hushrec.testing.checks import asking_twice
from hushrec.testing.checks import assert_same as assert_same_messages
from privacy.test_shares import masks_of

from .runs import Finished, assert_same, losing, run, some_ratings, table

SHORT = {"predict_after": 3, "local_steps": 3, "num_rounds": 8}
BIASED = {"biases": True, "shrinkage": 3.0, "regularization": 0.07, "decay": 1.0}


def test_hand_worked_round() -> None:
    """Users 0 and 1 and what they learn are those of FedRec++'s hand-worked round; user 2 has no ratings, and
    denoises, as user 1 does. k = 2, rho = 1, gamma = 1/4, lambda = 1/2, U = V = (1, 2).

    User 0 lists its item 0, with a gradient of -2.5, and the virtual item 1, of which nothing goes into its upload
    but masks; user 1 has -5.5 and 3. Without masks V_0 gets -2.5 - 5.5 from 2 clients, V_1 gets 3 from 1: so 2 and
    1.25, U is 1.625 and 1.875. User 1 adds up the masks of users 0, 1 (its own) and 2, who lists nothing.
    """

    def prepare(state: Any, private: Any) -> Any:
        private.user_factors[:] = [[1], [2], [1]]
        return replace(state, item_factors=np.array([[1], [2]], np.float32))

    finished = run(
        "fedrec++", table([{0: 4.0}, {0: 5.0, 1: 3.0}, {}], num_items=2), num_factors=1, num_rounds=1,
        learning_rate=0.25, who_denoises=[1, 2], prepare=prepare, cohort_size=3, rho=1, denoisers=2, shares=2,
        regularization=0.5,
    )  # fmt: skip
    assert finished.user_factors.ravel().tolist() == [1.625, 1.875, 1.0]
    assert finished.item_factors.ravel().tolist() == [2.0, 1.25]
    (upload,), letters, (sums,) = (finished.sent(kind) for kind in (MaskedGradients, MaskShare, SummedShares))
    assert upload.message.items.values.tolist() == [0, 1, 0, 1]
    assert sorted(np.stack([one.addressees for one in letters])[:, 0].tolist()) == [1, 2]
    masks = np.zeros((4, 2), np.int64)
    by_denoiser = {1: np.zeros((2, 2), np.int64), 2: np.zeros((2, 2), np.int64)}
    for sent in letters:
        for user in (0, 1):
            own = masks_of(sent.message.seeds[user], 4).reshape(2, 2)
            masks[2 * user : 2 * user + 2] += own
            by_denoiser[int(sent.addressees[user])] += own
    unmasked = upload.message.words.values - masks
    assert (unmasked[:, 0] / 2**FRACTION_BITS).tolist() == [-2.5, 0.0, -5.5, 3.0]
    assert unmasked[:, 1].tolist() == [1, 0, 1, 1]
    assert sums.message.items.values.tolist() == [0, 1, 0, 1]
    np.testing.assert_array_equal(sums.message.words.values, np.vstack([by_denoiser[1], by_denoiser[2]]))


# --- Lossless ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more", [{}, {"update": "sequential"}, BIASED, {"resample": "once"}, {"participation": 0.4}]
)
@pytest.mark.parametrize(("denoisers", "shares"), [(1, 1), (2, 2), (3, 2), (12, 3), (24, 2)])
def test_lossless_to_the_last_bit(denoisers: int, shares: int, more: dict[str, Any]) -> None:
    """Whoever takes part, denoisers do not change it: as FedRec without virtual items, then too."""
    ratings, values = some_ratings(), {**SHORT, **more}
    shared = run("fedrec++", ratings, rho=3, denoisers=denoisers, shares=shares, **values)
    assert_same(shared, run("fedrec", ratings, rho=0, **values))
    assert shared.sent(MaskShare)


@pytest.mark.parametrize("assignment", ["dealt", "random"])
def test_lossless_with_threads_and_either_assignment(assignment: str) -> None:
    values = {"rho": 2, "denoisers": 5, "shares": 3, "assignment": assignment, **SHORT}
    shared = run("fedrec++", some_ratings(), threads=2, cohort_size=1, **values)
    assert_same(shared, run("fedrec", some_ratings(), rho=0, **SHORT))
    assert_same_messages(shared, run("fedrec++", some_ratings(), **values))


def test_a_ranking_loss_is_lossless_too() -> None:
    clean = run("fedrec-bpr", some_ratings(), rho=0, denoisers=2, from_popularity=True)
    shared = run("fedrec-bpr", some_ratings(), rho=3, denoisers=3, shares=2, from_popularity=True)
    assert_same(shared, clean)
    assert not shared.sent(fedrec.ItemGradients)


@pytest.mark.parametrize("how", ["dealt", "random"])
@pytest.mark.parametrize(("num_clients", "num_denoisers", "k"), [(24, 3, 2), (10, 10, 2), (7, 5, 4), (3, 9, 2)])
def test_each_client_has_k_different_denoisers(num_clients: int, num_denoisers: int, k: int, how: Any) -> None:
    """Dealt evenly, nobody gets fewer than three letters, and loads differ by k at most."""
    clients, denoisers = np.arange(num_clients, dtype=np.int32), 50 + np.arange(num_denoisers, dtype=np.int32)
    dealt = assign_shares(clients, denoisers, k, 1, Draws(0), how)
    assert dealt.denoisers_of.shape == (num_clients, k)
    assert dealt.denoisers_of.dtype == np.int32
    assert all(len(set(own)) == k for own in dealt.denoisers_of.tolist())
    loads = np.unique(dealt.denoisers_of, return_counts=True)[1]
    if how == "dealt":
        assert loads.min() >= 3
        assert loads.max() - loads.min() <= k
        assert not len(dealt.lonely())
    assert not len(assign_shares(clients, denoisers[: k - 1], k, 1, Draws(0), how).clients)


# --- Who is lost -------------------------------------------------------------------------------------------


def assert_equals_a_run_of_those_counted(finished: Finished, num_rounds: int = 4) -> None:
    """The oracle: FedRec without virtual items in which, per round, exactly those answer whose update counted."""
    left_out = [
        (number, fedrec.ItemFactors, int(client))
        for number in range(1, num_rounds + 1)
        for client in np.flatnonzero(finished.states[number].counted_round != number)
    ]
    clean = run("fedrec", some_ratings(), rho=0, num_rounds=num_rounds, losses=losing(*left_out))
    for one, other in zip(finished.states, clean.states, strict=True):
        np.testing.assert_array_equal(one.item_factors, other.item_factors)
    np.testing.assert_array_equal(finished.user_factors, clean.user_factors)


def clients_of(finished: Finished, denoiser: int, round_number: int) -> list[int]:
    """Who had a denoiser, as the first requests of a round said."""
    had: dict[int, bool] = {}
    for sent in finished.sent(FactorsToShare, round_number):
        for number, own in zip(sent.numbers.tolist(), sent.message.denoisers.values.reshape(-1, 2), strict=True):
            had.setdefault(number, denoiser in own)
    return sorted(number for number, is_own in had.items() if is_own)


SHARED = {"rho": 2, "shares": 2}


@pytest.mark.parametrize("who_denoises", [[4, 9], [4, 9, 11], [1, 4, 9, 11, 17]])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_denoiser_lost_once(who_denoises: list[int], threads: int) -> None:
    """It is left out with all its clients, who with two denoisers are all; another is drawn for it."""
    finished = run(
        "fedrec++", some_ratings(), denoisers=len(who_denoises), who_denoises=who_denoises, threads=threads,
        losses=losing((2, SendShareSums, 4)), **SHARED,
    )  # fmt: skip
    left_out = sorted({4, *clients_of(finished, 4, 2)})
    assert np.flatnonzero(finished.states[2].counted_round != 2).tolist() == left_out
    assert (len(left_out) == 24) == (len(who_denoises) == 2)
    assert 4 not in finished.states[2].denoisers
    assert len(finished.states[2].denoisers) == len(who_denoises)
    assert (finished.states[4].counted_round == 4).all()
    assert_equals_a_run_of_those_counted(finished)


def test_one_lost_for_good_in_whatever_role() -> None:
    finished = run(
        "fedrec++", some_ratings(), denoisers=3, who_denoises=[4, 9, 11],
        losses=lambda number, _request, to: (to == 4) & (number >= 2), **SHARED,
    )  # fmt: skip
    counted = finished.states[-1].counted_round
    assert counted[4] == 1
    assert (np.delete(counted, 4) == 4).sum() > 10
    assert_equals_a_run_of_those_counted(finished)


def test_clients_and_a_denoiser_lost_together() -> None:
    away = ((2, 0), (2, 20), (3, 1))
    finished = run(
        "fedrec++", some_ratings(), denoisers=4, who_denoises=[4, 9, 11, 20],
        losses=losing((2, SendShareSums, 4), *((number, FactorsToShare, one) for number, one in away)), **SHARED,
    )  # fmt: skip
    assert {0, 4, 20} <= set(np.flatnonzero(finished.states[2].counted_round != 2).tolist())
    assert np.flatnonzero(finished.states[3].counted_round != 3).tolist() == [1]
    assert_equals_a_run_of_those_counted(finished)


@pytest.mark.parametrize("request_lost", [FactorsToShare, SendShareSums])
def test_all_lost(request_lost: type) -> None:
    """The round changes nothing, and the next one goes on."""
    finished = run(
        "fedrec++", some_ratings(), denoisers=3,
        losses=lambda number, request, to: np.full(len(to), number == 2 and request is request_lost), **SHARED,
    )  # fmt: skip
    np.testing.assert_array_equal(finished.states[2].item_factors, finished.states[1].item_factors)
    assert (finished.states[4].counted_round == 4).all()
    assert_equals_a_run_of_those_counted(finished)


def test_a_denoiser_with_too_few_letters_is_left_out() -> None:
    """All but two clients are lost: no denoiser is asked for the sum over these, and they do not count."""
    finished = run(
        "fedrec++", some_ratings(), denoisers=3,
        losses=lambda number, request, to: (to > 1) & (number == 2) & (request is FactorsToShare), **SHARED,
    )  # fmt: skip
    assert not finished.sent(SummedShares, 2)
    assert (finished.states[2].counted_round == 1).all()
    assert_equals_a_run_of_those_counted(finished)


def test_asked_twice_the_same_bytes() -> None:
    values = {"denoisers": 3, **SHARED}
    twice = run("fedrec++", some_ratings(), change=asking_twice, **values)
    assert_same_messages(twice, run("fedrec++", some_ratings(), **values))


# --- What is refused, what is seen -------------------------------------------------------------------------


def test_who_sees_what() -> None:
    transcript = run("fedrec++", some_ratings(), denoisers=3, **SHARED).transcript
    seen = {role: {type(one.message) for one in transcript.seen_by(role)} for role in (Role.SERVER, Role.DENOISER)}
    assert seen[Role.DENOISER] == {MaskShare, SendShareSums, SummedShares}
    assert MaskShare not in seen[Role.SERVER]
    assert fedrec.ItemGradients not in seen[Role.SERVER]


def test_impossible_numbers_are_refused() -> None:
    for denoisers in (1, 25):
        with pytest.raises(
            HushrecError, match=r"shares=2 gives each of 24 clients 2 denoisers; use denoisers=2 or"
        ):
            run("fedrec++", some_ratings(), denoisers=denoisers, shares=2)
    with pytest.raises(HushrecError, match=r"hides nobody among 2 clients in a round; use 3 or more"):
        run("fedrec++", some_ratings(), denoisers=3, shares=2, participation=0.1)
    with pytest.raises(HushrecError, match=r"shares=2 needs no virtual ratings; add user_update='rated'"):
        run("fedrec++", some_ratings(), denoisers=3, shares=2, user_update="rated-and-virtual")


def test_a_diverging_client_refuses_itself() -> None:
    ratings = table([{0: 4.0}, {0: 5.0, 1: 1e6}, {0: 3.0}], num_items=2)

    def prepare(state: Any, private: Any) -> Any:
        private.user_factors[:] = 1
        return state

    with pytest.raises(DivergedError, match=r"^round 1: the update of client 1 is not finite or not within ±2048"):
        run("fedrec++", ratings, num_factors=1, num_rounds=1, denoisers=2, shares=2, prepare=prepare)


@pytest.mark.parametrize(
    ("denoisers", "words"),
    [([4], "told other than 2 denoisers"), ([4, 4], "same denoiser twice")],
)
def test_a_client_wants_k_different_denoisers(denoisers: list[int], words: str) -> None:
    system, rows = SYSTEMS["fedrec++"], some_ratings().rows
    config, draws = system.configure({"shares": 2, "denoisers": 2, "num_factors": 5}), Draws(0)
    private = system.enrol(np.arange(24, dtype=np.int32), rows, 30, config, draws)
    cohort = Cohort(np.zeros(1, np.int32), np.zeros(1, np.int64), private, 1)
    told, nothing = Ragged.one(np.array(denoisers, np.int32)), np.zeros(1, np.int32)
    request = FactorsToShare(np.ones((30, 5), np.float32), np.array(24), nothing, told)
    with pytest.raises(HushrecError, match=words):
        system.handlers[FactorsToShare].answer(cohort, request, config, draws)
    with pytest.raises(HushrecError, match="fewer than 3 clients, whose rows would show"):
        system.handlers[SendShareSums].answer(cohort, SendShareSums(), config, draws)


# --- On a network ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relay", ["direct", "onion"])
@pytest.mark.parametrize("name", ["fedrec++", "fedrec-bpr"])
def test_deployed_equals_one_process(name: str, relay: Any, tmp_path: Path) -> None:
    federation = Federation(tmp_path, 3, split_for(name, 3), seed=3)
    config = small(name, shares=2)
    ordered = federation.order(name, config, relay=relay)
    report = ordered.drive(Wire(federation, reopens=True))
    assert (report.status, report.reason) == ("done", "")
    ordered.assert_equals(in_process(name, config, split_for(name, 3)))


@pytest.mark.slow
def test_lossless_on_movielens() -> None:
    """Five rounds of ML-100K, where the file is at hand: the digest of FedRec without virtual items."""
    try:
        data = load("ml-100k")
    except HushrecError as error:
        pytest.skip(str(error))
    split, values = next(iter(k_folds(data, 5, 0))), {"num_rounds": 5}
    shared = in_process("fedrec++", {"rho": 3, "denoisers": 3, "shares": 2, **values}, split)
    assert shared.model_sha256 == in_process("fedrec", {"rho": 0, **values}, split).model_sha256

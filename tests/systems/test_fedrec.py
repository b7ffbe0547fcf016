from itertools import pairwise

import numpy as np
import pytest

from hushrec.errors import HushrecError
from hushrec.systems import fedrec

from .runs import HAND_WORKED, Finished, assert_same, digest, hand_worked, losing, run, some_ratings

GOLDEN = "70587bd95985b36511660cb994b7bb70009409da20545aa03729a2f5aee88f06"


def test_hand_worked_round() -> None:
    """rho = 1, the virtual rating is the mean, gamma = 1/4, lambda = 1/2, U = (1, 2), V = (1, 2).

    User 0 rated item 0 with 4 and fills in item 1 with 4: errors 1*1 - 4 = -3 and 1*2 - 4 = -2. User 1 rated all:
    errors 2*1 - 5 = -3 and 2*2 - 3 = 1.
    U_0 learns from both: (-3*1 - 2*2) / 2 + 1/2 = -3, so 1 + 3/4 = 1.75.
    U_1: (-3*1 + 1*2) / 2 + 1 = 1/2, so 2 - 1/8 = 1.875.
    Uploads of user 0: -3*1 + 1/2 = -2.5 and -2*1 + 1 = -1; of user 1: -3*2 + 1/2 = -5.5 and 1*2 + 1 = 3.
    V_0: mean -4, so 1 + 1 = 2. V_1: mean 1, so 2 - 1/4 = 1.75.
    """
    finished = hand_worked("fedrec", rho=1, filling="average", regularization=0.5)
    assert finished.user_factors.ravel().tolist() == [1.75, 1.875]
    assert finished.item_factors.ravel().tolist() == [2.0, 1.75]
    (uploads,) = finished.sent(fedrec.ItemGradients)
    assert uploads.message.items.values.tolist() == [0, 1, 0, 1]
    assert uploads.message.gradients.values.ravel().tolist() == [-2.5, -1.0, -5.5, 3.0]


def test_hand_worked_prediction() -> None:
    """As above, but the virtual rating is U' V_1 with two local steps on item 0, in the first round already.

    U': 1, then 1 - (-3 + 1/2) / 4 = 1.625, then 1.625 - (1.625 - 4 + 0.8125) / 4 = 2.015625.
    Virtual rating 4.03125, error 2 - 4.03125 = -2.03125, upload -2.03125 + 1 = -1.03125.
    U_0: (-3 - 2.03125*2) / 2 + 1/2 = -3.03125, so 1 + 0.7578125. V_1: (-1.03125 + 3) / 2, so 2 - 0.24609375.
    """
    finished = hand_worked("fedrec", rho=1, predict_after=-1, local_steps=2, regularization=0.5)
    assert finished.user_factors[0, 0] == 1.7578125
    assert finished.item_factors[1, 0] == 1.75390625


def test_hand_worked_sequential_update() -> None:
    """rho = 0, gradients of V with the new U = (1.625, 1.875) of PMF's hand-worked round.

    V_0: errors 1.625 - 4 = -2.375 and 1.875 - 5 = -3.125; gradients -2.375*1.625 + 1/2 = -3.359375 and
    -3.125*1.875 + 1/2 = -5.359375; mean -4.359375, so 1 + 1.08984375.
    V_1: error 3.75 - 3 = 3/4, gradient 3/4*1.875 + 1 = 2.40625, so 2 - 0.6015625.
    """
    finished = hand_worked("fedrec", rho=0, regularization=0.5, update="sequential")
    assert finished.user_factors.ravel().tolist() == [1.625, 1.875]
    assert finished.item_factors.ravel().tolist() == [2.08984375, 1.3984375]


def test_prediction_begins_after_t_predict_rounds() -> None:
    """T_predict = 1: when more than one round is done, so rounds 1 and 2 equal those of a run with averages."""
    ratings = some_ratings()
    hybrid = run("fedrec", ratings, rho=2, predict_after=1)
    average = run("fedrec", ratings, rho=2, filling="average")
    is_equal = [
        np.array_equal(one.item_factors, other.item_factors)
        for one, other in zip(hybrid.states, average.states, strict=True)
    ]
    assert is_equal == [True, True, True, False, False]


def test_prediction_begins_after_rounds_of_the_client() -> None:
    """T_predict = 1, half of the clients per round: each fills in its mean in its first two rounds, whichever they
    are. Where all rounds are counted, everyone predicts from round 3 on.
    """
    values = {"rho": 1, "participation": 0.5, "num_rounds": 5, "cohort_size": 1}
    own = run("fedrec", some_ratings(), predict_after=1, **values)
    every = run("fedrec", some_ratings(), predict_after=1, predict_after_counts="all", **values)
    mean = run("fedrec", some_ratings(), filling="average", **values)
    took_part: dict[int, list[int]] = {}
    for sent in own.sent(fedrec.ItemGradients):
        took_part.setdefault(int(sent.numbers[0]), []).append(sent.round_number)
    first_predicted = min(rounds[2] for rounds in took_part.values() if len(rounds) > 2)
    for finished, first in ((own, first_predicted), (every, 3)):
        is_equal = [
            np.array_equal(one.item_factors, other.item_factors)
            for one, other in zip(finished.states, mean.states, strict=True)
        ]
        assert is_equal == [number < first for number in range(6)]
    assert own.private.num_updates.tolist() == [len(took_part.get(client, [])) for client in range(24)]
    assert (own.item_factors != every.item_factors).any()


def test_whose_update_did_not_count_predicts_later() -> None:
    """Client 3 is not heard in round 2: it fills in its mean in rounds 1 to 3, and predicts in round 4."""
    finished = run("fedrec", some_ratings(), rho=1, predict_after=1, losses=losing((2, None, 3)))
    mean = run("fedrec", some_ratings(), rho=1, filling="average", losses=losing((2, None, 3)))
    assert finished.private.num_updates[3] == 3
    assert np.delete(finished.private.num_updates, 3).tolist() == [4] * 23

    def upload(done: Finished, number: int, client: int) -> list[list[float]]:
        (sent,) = done.sent(fedrec.ItemGradients, number)
        place = sent.numbers.tolist().index(client)
        return sent.message.gradients.part(place, place + 1).values.tolist()

    assert upload(finished, 3, 3) == upload(mean, 3, 3)
    assert upload(finished, 3, 4) != upload(mean, 3, 4)


def test_only_rated_items_where_the_user_update_says_so() -> None:
    """As the hand-worked round, but U_0 learns from item 0 only: -3*1 + 1/2 = -2.5, so 1 + 2.5/4; V as there."""
    finished = hand_worked("fedrec", rho=1, filling="average", regularization=0.5, user_update="rated")
    assert finished.user_factors.ravel().tolist() == [1.625, 1.875]
    assert finished.item_factors.ravel().tolist() == [2.0, 1.75]


def test_virtual_ratings_change_the_model() -> None:
    """The loss that FedRec++ removes: with rho the result is another one."""
    ratings = some_ratings()
    results = [run("fedrec", ratings, rho=rho) for rho in (0, 1, 2)]
    for one, other in pairwise(results):
        assert (one.item_factors != other.item_factors).any()
        assert (one.user_factors != other.user_factors).any()


def listed(resample: str) -> list[list[list[int]]]:
    """Per round, per client, the items of its upload."""
    finished = run("fedrec", some_ratings(num_items=90), rho=1, resample=resample, cohort_size=1000)
    return [
        [sent.message.items.part(k, k + 1).values.tolist() for k in range(len(sent.numbers))]
        for sent in finished.sent(fedrec.ItemGradients)
    ]


def test_virtual_items_are_drawn_once_or_every_round() -> None:
    once, anew = listed("once"), listed("every-round")
    assert once[0] == once[1] == once[2] == once[3]
    assert all(one != other for later in anew[1:] for one, other in zip(anew[0], later, strict=True))


def test_participation() -> None:
    """A quarter of 24 clients: 6 per round, not the same ones, and who is not asked does not change."""
    finished = run("fedrec", some_ratings(), participation=0.25, num_rounds=3, cohort_size=1000)
    asked = [set(sent.numbers.tolist()) for sent in finished.sent(fedrec.ItemFactors)]
    assert [len(one) for one in asked] == [6, 6, 6]
    assert len({frozenset(one) for one in asked}) == 3
    untouched = run("fedrec", some_ratings(), losses=lambda _round, _request, to: to >= 0)
    never = sorted(set(range(24)) - set.union(*asked))
    assert never
    np.testing.assert_array_equal(finished.user_factors[never], untouched.user_factors[never])


def test_lost_clients_do_not_count() -> None:
    """Losing all but some clients of round 2 gives what those alone give; the others keep their vectors."""
    gone = [0, 5, 6, 23]
    finished = run("fedrec", some_ratings(), rho=1, losses=losing(*((2, None, one) for one in gone)), num_rounds=2)
    first = run("fedrec", some_ratings(), rho=1, num_rounds=1)
    np.testing.assert_array_equal(finished.user_factors[gone], first.user_factors[gone])
    assert finished.states[-1].counted_round[gone].tolist() == [1] * 4
    assert np.delete(finished.states[-1].counted_round, gone).tolist() == [2] * 20


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rho": -1}, "rho=-1 is not within 0 to"),
        ({"filling": "none"}, "filling='none' lists no virtual items; add rho=0"),
        ({"participation": 0.0}, "participation=0.0 is not in"),
        ({"participation": 1.1}, "participation=1.1 is not in"),
        ({"regularization": -0.1}, "regularization= must not be below 0"),
        ({"local_steps": 0}, "local_steps= must be at least 1"),
        ({"filling": "hybird"}, "bad setting filling='hybird': choose from"),
        ({"predict_after_counts": "some"}, "bad setting predict_after_counts='some': choose from"),
        ({"user_update": "virtual"}, "bad setting user_update='virtual': choose from"),
    ],
)
def test_settings_that_cannot_be(values: dict[str, object], message: str) -> None:
    with pytest.raises(HushrecError, match=message):
        run("fedrec", HAND_WORKED, **values)


def test_golden_transcript() -> None:
    finished = run(
        "fedrec", some_ratings(6, 20), num_factors=3, num_rounds=2, rho=1, predict_after=0, local_steps=2
    )
    assert digest(finished) == GOLDEN


def test_without_virtual_items_the_filling_does_not_matter() -> None:
    ratings = some_ratings()
    none = run("fedrec", ratings, rho=0, filling="none")
    for filling in ("hybrid", "average"):
        assert_same(run("fedrec", ratings, rho=0, filling=filling), none)

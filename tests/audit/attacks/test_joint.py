"""Two of three partners against the third: by hand, and beside what one finds alone."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from audit.test_partner_gradients import in_pairs
from hushrec.audit.attacks import ATTACKS
from hushrec.audit.attacks.joint_answers import ATTACK as ANSWERS
from hushrec.audit.attacks.joint_answers import judge, recover
from hushrec.audit.attacks.joint_identification import ATTACK as IDENTIFICATION
from hushrec.audit.attacks.joint_identification import likenesses
from hushrec.audit.attacks.joint_ratings import ATTACK as RATINGS
from hushrec.audit.driver import Audited, audit
from hushrec.audit.joint_gradients import Joint, rows_of
from hushrec.audit.partner_gradients import Letter, Recovered
from hushrec.audit.scoreboard import Attack, Own, Truth
from hushrec.data import Deal, Interactions, copies, synthetic
from hushrec.errors import HushrecError
from hushrec.protocol import Message, Numbers, Ragged, Recorded, Role, each, ragged
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job


@dataclass(frozen=True)
class Scores(Message):
    """Reveals: scores."""

    sender, receiver = Role.PARTNER, Role.PARTNER
    home: Numbers = each(np.int32, low=0)
    scores: Ragged = ragged(np.float32)


@pytest.fixture(scope="module")
def three() -> Interactions:
    data = synthetic(num_users=120, num_items=60, num_ratings=4000, seed=1)
    return next(copies(data, Deal(3, common_users=0.6, common_items=0.6), 0)).train


def audited(train: Interactions, *attacks: Attack[Any], seed: int = 0, **settings: Any) -> Audited:
    system = SYSTEMS["fedcore"]
    values = {"num_rounds": 6, "batch_size": 32, "num_factors": 4, "inference": "none"} | settings
    job = Job(system, system.configure(values), seed, train)
    return audit(job, RuntimeOptions(threads=1), lambda _progress, _scores: None, attacks)


def alone(attack: Attack[Any]) -> Attack[Any]:
    return replace(attack, name=f"{attack.name} alone", seats=attack.seats[:1])


def scores(done: Audited) -> dict[str, tuple[float, float]]:
    return {finding.attack.name: (finding.score, finding.chance) for finding in done.findings}


def test_likenesses_add_up_over_who_has_the_item() -> None:
    """(3, 4) and b's items 0, (1, 0), and 1, (0, 2): cosines .6, .8: one deviation below and above the mean.

    c's items 1, (3, 4), and 2, (4, -3): 1 and 0, so one above and below. Item 1, which both have: 2.
    """
    own, other = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[3.0, 4.0], [4.0, -3.0]])
    found = likenesses(np.array([[3.0, 4.0]]), [(np.array([0, 1]), own), (np.array([1, 2]), other)], 3)
    np.testing.assert_allclose(found, [[-1.0, 2.0, -1.0]])


def told_of(number: int, users: list[int], vectors: Any, ratings: list[float]) -> Recovered:
    """One letter of a step to a partner, with what it made of it."""
    none = np.empty((len(users), 0), np.float32)
    letter = Letter(0, np.array(users, np.int32), none, none[0], none, none[0])
    return Recovered([letter], np.asarray(vectors, np.float64), np.array(ratings))


def victim_of(holders: list[int], vectors: Any, **more: Any) -> dict[str, Any]:
    """Who has a user for each item, which it rated 1, 2, 3 and on; all in one batch."""
    size = len(holders)
    return {
        "users": np.arange(size), "items": np.arange(size), "ratings": 1 + np.arange(size, dtype=np.float32),
        "batches": np.arange(size), "common_users": np.arange(size), "holders_of_users": np.array(holders),
        "item_ids": np.arange(size), "item_factors_before": vectors, **more,
    }  # fmt: skip


SETTINGS = {"batch_size": 1000, "privatizer": "none"}


def test_hand_worked_ratings() -> None:
    """Users 0 and 1 are b's, 1 and 2 are c's, 3 nobody's; ratings 1, 2, 3, 4; 3 is the commonest of b's and c's.

    b reads 1 and 2, and guesses 3 for the others: 3 of 4. With c, who reads 3 as 5, and takes b's word for user 1:
    1 and 2, so 2 of 4. If c reads it right, 3 of 4. Blind: 1 of 4.
    """
    own = {"ratings": np.array([3.0, 3.0, 1.0, 2.0, 4.0, 5.0], np.float32)}
    held = {0: victim_of([2, 6, 4, 0], None), 1: own, 2: own}
    truth = Truth(synthetic(4, 4, 8), SETTINGS, holds=lambda number: held[number])
    of_b, of_c = told_of(1, [0, 1], np.zeros((2, 2)), [1.0, 2.0]), told_of(2, [1, 2], np.zeros((2, 2)), [4.0, 5.0])
    for found, expected in (({1: of_b}, 3), ({1: of_b, 2: of_c}, 2)):
        outcome = RATINGS.judge(Joint(found), truth)
        assert (outcome.right.sum(), outcome.blind.sum(), len(outcome.victims)) == (expected, 1, 4)


def test_both_catalogues_name_items_better_than_one() -> None:
    """Each has vectors that are off by noise of its own, in other orders; the victim's are recovered whole."""
    draws, size = np.random.default_rng(0), 200
    vectors, order = draws.normal(size=(size, 8)), draws.permutation(size)
    held = {
        0: victim_of([6] * size, vectors),
        1: {"item_ids": np.arange(size), "item_factors_before": vectors + draws.normal(0, 1.5, vectors.shape)},
        2: {"item_ids": order, "item_factors_before": vectors[order] + draws.normal(0, 1.5, vectors.shape)},
    }
    truth = Truth(synthetic(4, 4, 8), SETTINGS, holds=lambda number: held[number])
    each_one = {number: told_of(number, list(range(size)), vectors, [1.0] * size) for number in (1, 2)}
    one, other, both = (
        IDENTIFICATION.judge(Joint(found), truth) for found in ({1: each_one[1]}, {2: each_one[2]}, each_one)
    )
    assert both.scores.mean() > 1.2 * max(one.scores.mean(), other.scores.mean())
    assert both.chances.tolist() == [2 / size] * size


def test_two_have_rows_of_more_users_than_one() -> None:
    """Users of `ac` are told to c alone, and those of `ab` to b alone; letters of b and c are left out."""
    counts: dict[str, set[int]] = {}

    def noting(name: str) -> Any:
        def judge(found: Joint, truth: Truth) -> Any:
            counts[name] = set(rows_of(found, truth).users.tolist())
            return RATINGS.judge(found, truth)

        return judge

    both, one = (replace(attack, judge=noting(attack.name)) for attack in (RATINGS, alone(RATINGS)))
    done = audited(in_pairs(), both, one, num_rounds=1)
    assert len(done.findings) == 2
    assert counts[RATINGS.name] > counts[f"{RATINGS.name} alone"]


def test_vectors_that_are_drawn_name_items_as_a_blind_guess_does() -> None:
    """Twenty times 200 rows with 2 of 200 looked at: .01, with a standard error of .0016; beyond 3 once in 370."""
    draws, size, found = np.random.default_rng(0), 200, []
    for _ in range(20):
        vectors = draws.normal(size=(size, 8))
        own = {"item_ids": np.arange(size), "item_factors_before": vectors}
        held = {0: victim_of([6] * size, vectors), 1: own, 2: own}
        told = told_of(1, list(range(size)), draws.normal(size=(size, 8)), [1.0] * size)
        truth = Truth(synthetic(4, 4, 8), SETTINGS, holds=held.__getitem__)
        found.append(IDENTIFICATION.judge(Joint({1: told, 2: told}), truth).scores.mean())
    assert abs(np.mean(found) - 0.01) < 3 * 0.0016


def test_much_noise_leaves_nothing(three: Interactions) -> None:
    """Over 16 seeds, since one run's interval is above chance once in 40; 3 standard errors are once in 200."""
    noise = {"privatizer": "dp+average", "epsilon": 0.01, "learning_rate": 1e-4}
    runs = [audited(three, IDENTIFICATION, seed=seed, **noise).findings[0] for seed in range(16)]
    above = np.array([one.score - one.chance for one in runs])
    assert above.mean() < 3 * above.std(ddof=1) / 4


NAMES = np.arange(64, dtype=np.uint8).reshape(2, 32)


def own_of(settings: dict[str, Any], items: dict[int, list[list[float]]]) -> Own:
    holds = {
        number: {
            "item_factors": np.array(rows, np.float32), "layers": np.empty(0, np.float32),
            "helpers": np.array([1, -1]), "asked": np.array([0, 1]), "user_names": NAMES,
            "user_factors": np.array([[1.0, 0.0], [1.0, 2.0]], np.float32),
        }
        for number, rows in items.items()
    }  # fmt: skip
    return Own(settings, holds[min(holds)], np.random.default_rng(0), holds)


def answer(to: int, rows: list[float]) -> Recorded:
    message = Scores(np.array([1], np.int32), Ragged.one(np.array(rows, np.float32)))
    return Recorded(1, np.array([-1]), message, np.array([to], np.int32))


def test_hand_worked_answers() -> None:
    """u = (2, 5); own users (1, 0) and (1, 2) have the mean (1, 1).

    Partner 0 has an item (1, 0): answer 2; partner 2 has (1, 1): answer 7. Less those of the mean: 1 and 5, so u
    differs by (1, 4). With the first alone: by (1, 0), a cosine of 1/sqrt(17).
    """
    view = [answer(0, [2.0]), answer(2, [7.0])]
    items, asked = {0: [[1.0, 0.0]], 2: [[1.0, 1.0]]}, {"top_k": 0, "answer_noise": 0.0}
    both, one = recover(view, own_of(asked, items)), recover(view, own_of(asked, {0: items[0]}))
    np.testing.assert_allclose(both.differences, [[1.0, 4.0]], atol=1e-5)
    np.testing.assert_allclose(one.differences, [[1.0, 0.0]], atol=1e-5)
    home = {"user_names": NAMES, "user_factors": np.array([[2.0, 5.0], [9.0, 9.0]], np.float32)}
    truth = Truth(synthetic(4, 4, 8), holds=lambda _number: home)
    assert judge(both, truth).scores == pytest.approx([1.0])
    assert judge(one, truth).scores == pytest.approx([17**-0.5])
    with pytest.raises(HushrecError, match="without scores"):
        recover(view, own_of({"top_k": 3, "answer_noise": 0.0}, items))


def test_answers_to_both_take_noise_out_further() -> None:
    """The same visitor, 30 items each, noise of a third of the scores' spread."""
    draws = np.random.default_rng(0)
    vector, items = draws.normal(size=2), {number: draws.normal(size=(30, 2)) for number in (0, 2)}
    view = [answer(number, (rows @ vector + draws.laplace(0, 1, 30)).tolist()) for number, rows in items.items()]
    errors = []
    for numbers in ((0,), (2,), (0, 2)):
        known = own_of({"top_k": 0, "answer_noise": 1.0}, {number: items[number].tolist() for number in numbers})
        found = recover(view, known)
        errors.append(np.linalg.norm(found.differences[0] + found.mean - vector))
    assert errors[2] < np.mean(errors[:2])


def test_answers_of_a_run_give_vectors_to_both_and_with_noise_on_them_to_nobody(three: Interactions) -> None:
    pytest.importorskip("tenseal")
    wished = {"inference": "ckks", "num_asked": 30, "num_rounds": 3}
    finding, *_ = audited(three, ANSWERS, **wished).findings
    assert finding.score > 0.99
    assert finding.is_above_chance
    hidden, *_ = audited(three, ANSWERS, **wished, inference_noise=10.0).findings
    assert not hidden.is_above_chance


def test_with_two_partners_it_says_what_is_missing() -> None:
    data = synthetic(num_users=60, num_items=40, num_ratings=1000, seed=1)
    train = next(copies(data, Deal(2, common_users=0.6, common_items=0.6), 0)).train
    done = audited(train, IDENTIFICATION, RATINGS, ANSWERS, num_rounds=1)
    assert not done.findings
    line = "there is no partner number 3 here; train with more, as with --partners 3"
    assert set(done.left_out.values()) == {line}


@pytest.mark.parametrize("model", ["pmf", "neucf"])
def test_more_answers_train_better_vectors(three: Interactions, model: str) -> None:
    pytest.importorskip("tenseal")
    attacks = [ATTACKS[name] for name in ("training on 1%", "training", "training on 50%")]
    wished = {"model": model, "activation": "quadratic", "inference": "ckks", "num_asked": 12, "num_rounds": 3}
    found = scores(audited(three, *attacks, **wished))
    assert found["training on 50%"][0] > found["training"][0]
    assert found["training on 50%"][0] > 0.9

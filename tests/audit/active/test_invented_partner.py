"""A server that aligns partners with one that it made up: what they tell it, with what it can and cannot make."""

from typing import Any

import numpy as np
import pytest

from hushrec.audit.active import invented_partner
from hushrec.audit.active.invented_partner import ATTACK, Answers, guessed_ids, judge, look
from hushrec.audit.driver import audit
from hushrec.audit.scoreboard import Finding, Truth
from hushrec.data import Deal, Interactions, copies, synthetic
from hushrec.protocol import Role
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job


@pytest.fixture(scope="module")
def train() -> Interactions:
    return next(iter(copies(synthetic(40, 50, 900), Deal(num_partners=3), 0))).train


@pytest.fixture(autouse=True)
def few_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users are called 1 to 40."""
    monkeypatch.setattr(invented_partner, "HIGHEST_ID", 60)


def told(train: Interactions, **settings: Any) -> dict[str, Finding]:
    system = SYSTEMS["fedcore"]
    usual = {"num_rounds": 1, "num_factors": 4, "batch_size": 200, "inference": "none"}
    job = Job(system, system.configure({**usual, **settings}), 0, train)
    done = audit(job, RuntimeOptions(1), lambda _progress, _scores: None, [ATTACK], (Role.ACTIVE_SERVER,))
    assert done.left_out == {}
    return {finding.attack.name: finding for finding in done.findings}


def test_with_a_public_key_every_guessed_id_is_answered(train: Interactions) -> None:
    """By handlers as they are. On a node, letters are signed: nothing is answered, and nothing told."""
    found = told(train, alignment="keyed-hash")
    bare, deployed = found["invented partner"], found["invented partner (deployed)"]
    assert (bare.score, bare.refusal, bare.num_victims) == (1.0, "", 3)
    assert 0.5 <= bare.chance < 0.9
    assert deployed.score == deployed.chance
    assert deployed.refusal == "a letter is not signed by who is said to have written it"


def test_with_private_set_intersection_no_list_can_be_made_up(train: Interactions) -> None:
    found = told(train, alignment="psi")
    for finding in found.values():
        assert finding.score == finding.chance
    assert found["invented partner"].refusal == "the lists of ids are not one of each partner; align again"


def test_it_is_told_in_the_first_round_alone(train: Interactions) -> None:
    """Later nobody aligns any more; what the first round told is remembered."""
    found = told(train, alignment="keyed-hash", num_rounds=2)
    assert found["invented partner"].rounds == [1.0, 1.0]
    before = Answers(np.array([0]), np.array([1]), np.array([1]))
    assert look(before, [], None) is before  # type: ignore[arg-type]


def test_guesses_are_the_same_again_and_not_too_many() -> None:
    assert guessed_ids().tolist() == guessed_ids().tolist()
    assert len(set(guessed_ids().tolist())) == 40
    assert guessed_ids().min() >= 1
    assert guessed_ids().max() <= 60


def test_judged_by_hand() -> None:
    """Partner 0 has users 1 and 2, of whom 2 has no rating, so that it is not aligned; 3 was not answered."""
    names = invented_partner.name_of(1), invented_partner.name_of(2)
    holds = {
        "users": np.zeros(2, np.int32),
        "user_names": np.stack([np.frombuffer(name, np.uint8) for name in names]),
    }
    truth = Truth(None, holds=lambda _number: holds)  # type: ignore[arg-type]
    found = Answers(np.zeros(3, np.int64), np.array([1, 2, 3]), np.array([1, 1, -1]))
    outcome = judge(found, truth)
    assert outcome.scores.tolist() == pytest.approx([(1 + 0 + 2 / 3) / 3])
    assert outcome.chances.tolist() == pytest.approx([2 / 3])

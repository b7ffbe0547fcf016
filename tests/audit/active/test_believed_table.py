"""An orchestrator that names one owner for every item, by hand and on a small stream."""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from audit.test_owners import job_of
from hushrec.audit.active.believed_table import ATTACK, with_all_items
from hushrec.audit.asking import changed
from hushrec.audit.colluders import parse_colluders
from hushrec.audit.driver import audit
from hushrec.audit.scoreboard import Attack, Finding, Lie
from hushrec.data import Interactions, owned, synthetic
from hushrec.errors import PublicError
from hushrec.protocol import Message, Numbers, Role, shared
from hushrec.registry import SYSTEMS
from hushrec.runtime.checkpoint import model_digest
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import run_job
from hushrec.systems.drift.deeds import Book


@dataclass(frozen=True)
class Table(Message):
    """Reveals: who holds what."""

    sender, receiver = Role.ORCHESTRATOR, Role.USER
    starts: NDArray[np.int64] = shared(np.int64, low=0)
    owners: Numbers = shared(np.int32, low=0)


@pytest.fixture(scope="module")
def train() -> Interactions:
    data = synthetic(num_users=60, num_items=80, num_ratings=1500, seed=1)
    times = np.random.default_rng(0).permutation(len(data)).astype(np.int64)
    return owned(replace(data.as_signed(), timestamps=times), "4", 0)


def found(train: Interactions, attack: Attack[Any] = ATTACK, **settings: Any) -> Finding:
    roles = (Role.ACTIVE_SERVER, Role.OWNER)
    job = job_of(train, **settings)
    findings = audit(job, RuntimeOptions(1), lambda _progress, _scores: None, [attack], roles).findings
    bare, guarded = sorted(
        findings, key=lambda finding: finding.attack.lie is not None and finding.attack.lie.is_guarded
    )
    assert guarded.score <= bare.score, "no guard makes it worse"
    return bare


def test_hand_worked_table() -> None:
    """Items 0, 1, 2 have owners (0), nobody, (1, 2): with owner 1 for all, (0, 1), (1), (1, 2)."""
    table = with_all_items(Table(np.array([0, 1, 1, 3]), np.array([0, 1, 2], np.int32)), np.array([1], np.int32))
    assert isinstance(table, Table)
    assert table.starts.tolist() == [0, 2, 3, 5]
    assert table.owners.tolist() == [0, 1, 1, 1, 2]


@pytest.mark.parametrize(
    "settings",
    [{}, {"flag": "inside", "batch": 3}, {"encryption": "none"}, {"user_vectors": "users", "flag": "inside"}],
)
def test_users_do_not_believe_it_since_the_owner_has_not_signed(
    train: Interactions, settings: dict[str, Any]
) -> None:
    finding = found(train, **settings)
    assert finding.score == 0.0
    assert finding.refusal == "owner 0 has not signed for the items that the table gives it; refuse the table"


@pytest.mark.parametrize(
    "settings",
    [{}, {"flag": "inside", "batch": 3}, {"encryption": "none"}, {"user_vectors": "users", "flag": "inside"}],
)
def test_the_attack_reads_everything_where_nobody_checks(
    train: Interactions, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With users who believe any table: so the attack can fail for one reason only."""
    admit = Book.admit

    def believe(self: Book, starts: Any, owners: Any, deeds: Any, users_side: int) -> None:
        with suppress(PublicError):
            admit(self, starts, owners, deeds, users_side)

    monkeypatch.setattr(Book, "admit", believe)
    finding = found(train, **settings)
    assert finding.score == 1.0
    assert finding.chance < 0.5
    assert finding.refusal == ""


def test_with_the_true_table_nothing_foreign_comes(train: Interactions) -> None:
    honest = Lie(lambda stage, _own: changed(stage.honest, lambda request: request))
    assert found(train, replace(ATTACK, lie=honest)).score == 0.0


def test_the_training_does_not_notice(train: Interactions) -> None:
    job = job_of(train)
    roles = (Role.ACTIVE_SERVER, Role.OWNER)
    lied = audit(job, RuntimeOptions(1), lambda _progress, _scores: None, [ATTACK], roles).progress
    honest = run_job(job, RuntimeOptions(1))
    assert model_digest(lied.state, lied.private) == model_digest(honest.state, honest.private)


def test_an_orchestrator_can_lie_too() -> None:
    assert parse_colluders("active-server+owner", SYSTEMS["drift"]) == (Role.ACTIVE_SERVER, Role.OWNER)

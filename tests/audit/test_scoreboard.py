import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

import hushrec.audit.attacks
from audit.conftest import Upload, sent
from hushrec.audit.attacks import ATTACKS, attacks_on
from hushrec.audit.scoreboard import Attack, Finding, Watcher
from hushrec.data import Interactions
from hushrec.draws import Draws
from hushrec.registry import SYSTEMS

FOLDER = Path(hushrec.audit.attacks.__file__).parent


def test_the_registry_holds_every_attack_of_the_folder() -> None:
    modules = [importlib.import_module(f"hushrec.audit.attacks.{path.stem}") for path in FOLDER.glob("[!_]*.py")]
    found = {module.ATTACK.name: module.ATTACK for module in modules if hasattr(module, "ATTACK")}
    assert found == ATTACKS
    for module in modules:
        assert "hushrec.systems" not in Path(str(module.__file__)).read_text()


@pytest.mark.parametrize(
    ("system", "names"),
    [
        ("pmf", ["listed items", "upload frequency"]),
        ("fedrec", ["listed items", "upload frequency"]),
        ("ptf-fedrec", ["listed items", "top guess", "upload frequency"]),
        ("fcf", ["dense gradients"]),
        ("fedmf", ["sent blocks"]),
        ("metamf", ["error signs"]),
        ("average", []),
    ],
)
def test_what_applies_to_a_system(system: str, names: list[str]) -> None:
    if system not in SYSTEMS:
        pytest.skip(f"{system} is not registered")
    assert [attack.name for attack in attacks_on(SYSTEMS[system])] == names


def found(watcher: Watcher) -> Finding:
    finding = watcher.finding(Draws(0))
    assert finding is not None
    return finding


def watched(attack: Attack, train: Interactions, *rounds: Upload) -> Watcher:
    watcher = Watcher(attack, train.num_users)
    for uploads in rounds:
        watcher.look([sent(uploads)] if uploads else [], train)
    return watcher


def test_a_client_counts_once_however_often_it_took_part(owning: Callable[..., Interactions]) -> None:
    """Client 0: F1 of 1 and 0; client 1 is seen once, with 1. Rounds: 1, 0.5, nobody; in all (0.5 + 1) / 2."""
    train = owning([[0], [1], [2]], 4)
    watcher = watched(ATTACKS["listed items"], train, {0: [(0, 0)]}, {0: [(3, 0)], 1: [(1, 0)]}, {})
    finding = found(watcher)
    assert finding.rounds == [1.0, 0.5, None]
    assert finding.score == 0.75
    assert finding.chance == pytest.approx(0.25)
    assert finding.interval is not None
    assert 0.5 <= finding.interval[0] <= finding.score <= finding.interval[1] <= 1


def test_an_attack_that_sums_up_is_scored_by_its_last_guess(owning: Callable[..., Interactions]) -> None:
    train = owning([[0], [1]], 4)
    both = [(0, 0.0), (1, 0.0)]
    watcher = watched(ATTACKS["upload frequency"], train, {0: both, 1: both}, {0: [(0, 0)]}, {})
    finding = found(watcher)
    assert finding.rounds == [0.5, 0.75, 0.75]
    assert finding.score == 0.75


def test_intervals_are_keyed(owning: Callable[..., Interactions]) -> None:
    train = owning([[0], [1], [2], [3]], 9)
    uploads = {0: [(0, 0.0)], 1: [(0, 0.0)], 2: [(2, 0.0), (0, 0.0)], 3: [(3, 0.0), (4, 0.0), (5, 0.0)]}
    watcher = watched(ATTACKS["listed items"], train, uploads)
    assert found(watcher).interval == found(watcher).interval


def test_one_client_has_no_interval_and_nobody_no_finding(owning: Callable[..., Interactions]) -> None:
    """Own items only: frequency has nothing to tell apart, and an AUC of 0 would be a lie."""
    train = owning([[0]], 2)
    assert watched(ATTACKS["top guess"], train, {}).finding(Draws(0)) is None
    assert watched(ATTACKS["upload frequency"], train, {0: [(0, 0.5)]}).finding(Draws(0)) is None
    one = found(watched(ATTACKS["top guess"], train, {0: [(0, 0.5)]}))
    assert (one.score, one.interval) == (1.0, None)


@pytest.mark.parametrize("name", list(ATTACKS))
def test_sentences_say_score_and_chance(name: str) -> None:
    said = Finding(ATTACKS[name], 0.75, 0.25, None, []).said()
    assert said.endswith(".")
    assert "{" not in said
    for number in (0.75, 0.25):
        assert f"{number:.2f}" in said or f"{number:.0%}" in said

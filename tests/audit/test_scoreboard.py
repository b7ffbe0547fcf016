import ast
import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hushrec.audit
from audit.conftest import NOTHING, Upload, sent
from hushrec.audit.attacks import ATTACKS, attacks_on
from hushrec.audit.scoreboard import Attack, Finding, Score, Truth
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.protocol import Role
from hushrec.registry import SYSTEMS

ROOM = Path(hushrec.audit.__file__).parent
ONE_UPLOAD = ["ratings from one upload", "rated items in one upload", "rated items found in one upload"]
LISTS = ["intersection", "listed items", "upload frequency"]


def test_the_registry_holds_every_attack_of_the_folder() -> None:
    modules = [
        importlib.import_module(f"hushrec.audit.{folder}.{path.stem}")
        for folder in ("attacks", "active")
        for path in (ROOM / folder).glob("[!_]*.py")
    ]
    found = {module.ATTACK.name: module.ATTACK for module in modules}
    assert found == {name: ATTACKS[name] for name in ATTACKS if ATTACKS.is_built_in(name)}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield f"{node.module}"


@pytest.mark.parametrize("path", sorted(ROOM.rglob("*.py")), ids=lambda path: path.stem)
def test_no_attack_knows_a_system_from_within(path: Path) -> None:
    assert not [name for name in imported(path) if name.startswith("hushrec.systems")]


@pytest.mark.parametrize("name", list(ATTACKS))
def test_every_attack_reads_messages_of_some_system_from_a_seat_that_sees_them(name: str) -> None:
    attack = ATTACKS[name]
    attacked = [system for system in SYSTEMS.values() if attack.applies_to(system)]
    assert attacked
    roles = {Role.SERVER if seat.role == Role.ACTIVE_SERVER else seat.role for seat in attack.seats}
    for system in attacked:
        read = [kind for kind in system.messages if attack.reads(kind)]
        sees_lengths = Role.OBSERVER in roles  # of all messages, whatever is in them
        assert any(roles & {kind.sender, kind.receiver} or kind.has_own_cipher or sees_lengths for kind in read)


OWN = ("packet lengths", "shadow membership", "uploaded preferences")
WHO = ("gender inference", "age inference", "occupation inference")
SUMS = ("counts of one round", "differing rounds", "count equations")


@pytest.mark.parametrize(
    ("system", "names"),
    [
        ("pmf", [*LISTS, "packet lengths", *WHO]),
        ("fedrec", [*ONE_UPLOAD, *LISTS, *OWN, "public vectors", *WHO, "lone rows", *SUMS]),
        ("fedrec++", [*ONE_UPLOAD, "noise match", *LISTS, *OWN, "public vectors", *WHO, "lone rows", *SUMS]),
        (
            "fedrec-bpr",
            ["noise match", *LISTS, "pulled up", "fitting pairs", *OWN, "public vectors", *WHO, *SUMS],
        ),
        (
            "ptf-fedrec",
            [
                *("intersection", "listed items", "top guess", "order change", "upload frequency"),
                "frequency with scores",
                *(f"server extraction {which}" for which in ("1%", "10%", "50%", "untold")),
                *(*OWN, *WHO),
            ],
        ),
        ("fcf", ["dense gradients", *OWN, "public vectors", *WHO, *SUMS]),
        ("fedmf", ["sent blocks", *OWN, *WHO, *SUMS]),
        (
            "fedncf",
            ["noise match", *LISTS, "dense gradients", "step direction", *OWN, "public vectors", *WHO, *SUMS],
        ),
        ("metamf", ["error signs", *OWN, *WHO]),
        ("average", ["packet lengths"]),
        (
            "drift",
            [
                *("request watching", "score difference", "gradient direction", "gradient sign"),
                *("interactions read", "linked items", "foreign items", "foreign items read"),
                *("flag reading", "wire reading"),
            ],
        ),
        (
            "fedcore",
            [
                *("gradient inversion", "item vectors", "ratings from gradients", "item identification"),
                *("joint identification", "joint ratings", "accuracy reference", "training"),
                *("training on 1%", "training on 50%", "joint answers", "model extraction"),
            ],
        ),
    ],
)
def test_what_applies_to_a_system(system: str, names: list[str]) -> None:
    assert [attack.name for attack in attacks_on(SYSTEMS[system]) if ATTACKS.is_built_in(attack.name)] == names


@pytest.mark.parametrize("is_ours", [True, False])
def test_an_attack_of_others_that_cannot_say_what_it_reads_is_left_out(
    is_ours: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Attacks(dict[str, Attack[Any]]):
        def is_built_in(self, name: str) -> bool:
            return is_ours or name == "listed items"

    def fail(kind: type) -> bool:
        raise KeyError(kind.__name__)

    listed = ATTACKS["listed items"]
    attacks = Attacks({"other": replace(listed, name="other", reads=fail), "listed items": listed})
    monkeypatch.setattr("hushrec.audit.attacks.ATTACKS", attacks)
    if is_ours:
        with pytest.raises(KeyError):
            attacks_on(SYSTEMS["fedrec"])
        return
    assert attacks_on(SYSTEMS["fedrec"]) == [listed]
    (told,) = caplog.records
    assert re.fullmatch(r"the attack other is left out \(KeyError\(.*\)\); update or .*", told.getMessage())


def found(score: Score) -> Finding:
    finding = score.finding(Draws(0))
    assert finding is not None
    return finding


def watched(attack: Attack[Any], truth: Truth, *rounds: Upload) -> Score:
    score, guess = Score(attack), None
    for uploads in rounds:
        guess = attack.look(guess, [sent(uploads)] if uploads else [], NOTHING)
        score.add(attack.judge(guess, truth))
    return score


def test_a_client_counts_once_however_often_it_took_part(owning: Callable[..., Truth]) -> None:
    """Client 0: F1 of 1 and 0; client 1 is seen once, with 1. Rounds: 1, 0.5, nobody; in all (0.5 + 1) / 2."""
    truth = owning([[0], [1], [2]], 4)
    score = watched(ATTACKS["listed items"], truth, {0: [(0, 0)]}, {0: [(3, 0)], 1: [(1, 0)]}, {})
    finding = found(score)
    assert finding.rounds == [1.0, 0.5, None]
    assert finding.score == 0.75
    assert finding.chance == pytest.approx(0.25)
    assert finding.interval is not None
    assert 0.5 <= finding.interval[0] <= finding.score <= finding.interval[1] <= 1


def test_an_attack_that_sums_up_is_scored_by_its_last_guess(owning: Callable[..., Truth]) -> None:
    truth = owning([[0], [1]], 4)
    both = [(0, 0.0), (1, 0.0)]
    score = watched(ATTACKS["upload frequency"], truth, {0: both, 1: both}, {0: [(0, 0)]}, {})
    finding = found(score)
    assert finding.rounds == [0.5, 0.75, 0.75]
    assert finding.score == 0.75


@pytest.mark.parametrize(("name", "is_kept"), [("upload frequency", False), ("listed items", True)])
def test_a_failed_last_round_does_not_report_an_earlier_one(
    name: str, is_kept: bool, owning: Callable[..., Truth]
) -> None:
    """Where the last round counts alone, there is no finding; where all rounds count, the others stay."""
    score = watched(ATTACKS[name], owning([[0], [1]], 4), {0: [(0, 0.0), (1, 0.0)]})
    assert found(score)
    score.fail("it is too late")
    assert (score.finding(Draws(0)) is not None) == is_kept
    assert (score.rounds[-1], score.fault) == (None, "it is too late")


def test_intervals_are_keyed(owning: Callable[..., Truth]) -> None:
    truth = owning([[0], [1], [2], [3]], 9)
    uploads = {0: [(0, 0.0)], 1: [(0, 0.0)], 2: [(2, 0.0), (0, 0.0)], 3: [(3, 0.0), (4, 0.0), (5, 0.0)]}
    score = watched(ATTACKS["listed items"], truth, uploads)
    assert found(score).interval == found(score).interval


def test_one_client_has_no_interval_and_nobody_no_finding(owning: Callable[..., Truth]) -> None:
    """Own items only: frequency has nothing to tell apart, and an AUC of 0 would be a lie."""
    truth = owning([[0]], 2)
    assert watched(ATTACKS["top guess"], truth, {}).finding(Draws(0)) is None
    assert watched(ATTACKS["upload frequency"], truth, {0: [(0, 0.5)]}).finding(Draws(0)) is None
    one = found(watched(ATTACKS["top guess"], truth, {0: [(0, 0.5)]}))
    assert (one.score, one.interval) == (1.0, None)


@pytest.mark.parametrize("name", list(ATTACKS))
def test_sentences_say_score_and_chance(name: str) -> None:
    """Where a blind guess finds nothing, as of a whole vector, the sentence need not say so."""
    attack = ATTACKS[name]
    said = Finding(attack, 0.75, 0.25, None, []).said()
    assert said.endswith(".")
    assert "{" not in said
    for number, word in ((0.75, "{score"), (0.25, "{chance")):
        is_said = any(f"{number:{form}}" in said for form in (".3f", ".2f", ".1%", ".0%"))
        assert is_said == (word in attack.sentence)
    assert "{score" in attack.sentence


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seats": ()}, r"the attack listed items has no seat; give it one, as in \(Seat\(Role.SERVER\),\)"),
        ({"own": ("items",)}, "the attack listed items needs data of its own; number its first seat"),
        ({"sentence": "{socre}"}, r"the sentence of listed items may have \{score\} and \{chance\} only"),
        ({"sentence": "{}"}, "the sentence of listed items may have .* only"),
        ({"sentence": "{score:d}"}, "the sentence of listed items may have .* only"),
    ],
)
def test_an_attack_that_cannot_work_cannot_be_made(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(HushrecError, match=rf"\A{told}\Z"):
        replace(ATTACKS["listed items"], **changes)

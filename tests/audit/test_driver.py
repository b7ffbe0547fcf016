"""One driver for all systems; attacks see what was sent and what the attacker has, and nothing else."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hushrec
from hushrec.audit import driver
from hushrec.audit.attacks import ATTACKS
from hushrec.audit.driver import Audited, AuditInterruptedError, Onlooker, audit
from hushrec.audit.scoreboard import Attack, Outcome, Own, Truth
from hushrec.data import Deal, Interactions, copies
from hushrec.errors import HushrecError
from hushrec.protocol import Ragged, Role, Seat, View
from hushrec.registry import SYSTEMS
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, job_for, run_job

ATTRIBUTES = ("gender", "age group", "occupation")
SHORT = {
    "fedrec": {"num_rounds": 2, "num_factors": 4},
    "fedrec++": {"num_rounds": 2, "num_factors": 4},
    "fedrec-bpr": {"num_rounds": 2, "num_factors": 4},
    "ptf-fedrec": {"num_rounds": 2},
    "fcf": {"num_rounds": 1},
    "fedncf": {"num_rounds": 2, "participation": 1.0},
    "metamf": {"num_rounds": 1},
    "fedmf": {"num_rounds": 2, "num_factors": 4, "encryption": "none"},
    "drift": {"epochs": 1, "parts": 2, "window": 64},
    "fedcore": {"num_rounds": 3, "batch_size": 32, "num_factors": 4, "num_asked": 12},
}
# Rounds that differ by two, if all but one take part, and items with one rater, if five do.
SUMS = {"rho": 0, "secure_sums": True}


@pytest.fixture(scope="module")
def data() -> Interactions:
    return hushrec.load("synthetic:users=100,items=60,ratings=2500")


def job_of(name: str, data: Interactions, **settings: Any) -> Job:
    system = SYSTEMS[name]
    config = system.configure({**SHORT[name], **settings})
    return job_for(system, config, 0, next(copies(data, Deal(), 0)).train if name == "fedcore" else data)


def audited(job: Job, *attacks: Attack[Any]) -> Audited:
    return audit(job, RuntimeOptions(1), lambda _progress, _scores: None, attacks or None)


def test_every_attack_has_a_score_and_a_chance(data: Interactions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of synthetic users nothing is known; here every second one is made a woman, and so on."""
    pytest.importorskip("tenseal")
    made = {name: np.tile(["a", "b"], data.num_users)[: data.num_users] for name in ATTRIBUTES}
    monkeypatch.setattr(driver, "user_facts", lambda train: made if train.num_users == data.num_users else {})
    sums = [job_of("fedrec", data, **{**SUMS, "participation": share}) for share in (0.99, 0.05)]
    kept = job_of("drift", data, user_vectors="users")
    fedcore = SYSTEMS["fedcore"]
    three = next(copies(data, Deal(3), 0)).train
    joint = job_for(fedcore, fedcore.configure(SHORT["fedcore"]), 0, three)
    jobs = [*(job_of(name, data) for name in SHORT), *sums, kept, joint]
    findings = [finding for job in jobs for finding in audited(job).findings]
    names = {name for name in ATTACKS if ATTACKS.is_built_in(name) and ATTACKS[name].lie is None}
    assert {finding.attack.name for finding in findings} >= names
    for finding in findings:
        assert -1 <= finding.score <= 1
        assert -1 <= finding.chance <= 1
        assert len(finding.rounds) == 2 or finding.attack.role != Role.ORCHESTRATOR


# --- What a guess is made of -----------------------------------------------------------------------------


Looks = tuple[Any, Any, Outcome, Outcome]


def looks(job: Job, name: str, change: Callable[[Progress], None]) -> Looks:
    """Guesses of an attack about the last round, before and after something is changed, and how right they are.

    Both are scored by what was true before.
    """
    attack, found = ATTACKS[name], list[Looks]()

    def on_round(progress: Progress) -> None:
        if progress.round_number == job.config.num_rounds:
            first, second = Onlooker(job), Onlooker(job)
            first.begin(progress)
            guess, truth = first.guess(attack), first.truth()
            held = {number: {name: kept.copy() for name, kept in truth.holds(number).items()} for number in (0, 1)}
            truth = truth._replace(holds=held.__getitem__)
            outcome = attack.judge(guess, truth)
            change(progress)
            second.begin(progress)
            other = second.guess(attack)
            found.append((guess, other, outcome, attack.judge(other, truth)))
        progress.transcript.recorded.clear()

    run_job(job, RuntimeOptions(1, keep_payloads=True), on_round=on_round)
    return found[0]


def alter_gradients(progress: Progress) -> None:
    """Every gradient of a common user that was sent to partner b is another one."""
    generator, recorded = np.random.default_rng(0), progress.transcript.recorded
    for place, one in enumerate(recorded):
        message: Any = one.message
        if type(message).__name__ == "UserGradients" and one.addressees is not None:
            values = message.gradients.values.copy()
            is_to_b = np.repeat(one.addressees == 1, message.gradients.lengths)
            values[is_to_b] = generator.normal(0, 0.1, (int(is_to_b.sum()), values.shape[1]))
            changed = replace(message, gradients=Ragged(message.gradients.starts, values))
            recorded[place] = one._replace(message=changed)


def forget(partner: Any) -> None:
    """A partner forgets its ratings, its vectors, its answers and the order of its batches."""
    learned = (partner.user_factors, partner.item_factors, *partner.before, partner.shown_users)
    for array in (*learned, partner.answers):
        array[:] = 0
    partner.users, partner.items = np.zeros_like(partner.users), np.zeros_like(partner.items)
    partner.ratings, partner.order = np.zeros_like(partner.ratings), None
    partner.decrypted.clear()


@pytest.mark.parametrize("settings", [{}, {"privatizer": "dp"}, {"privatizer": "average"}])
def test_what_a_partner_guesses_is_made_of_the_mail(data: Interactions, settings: dict[str, str]) -> None:
    job = job_of("fedcore", data, inference="none", num_rounds=5, **settings)
    guess, other, outcome, worse = looks(job, "gradient inversion", alter_gradients)
    assert guess.vectors.shape == other.vectors.shape
    assert len(guess.vectors)
    assert not (guess.vectors == other.vectors).all(axis=1).any(), "every row is another"
    assert outcome.victims.tolist() == worse.victims.tolist()
    assert outcome.scores.mean() > worse.scores.mean() + 0.1


@pytest.mark.parametrize("name", ["gradient inversion", "ratings from gradients", "item identification"])
def test_what_a_partner_guesses_is_not_made_of_what_the_other_has(data: Interactions, name: str) -> None:
    job = job_of("fedcore", data, inference="none")
    guess, same, outcome, scored = looks(job, name, lambda progress: forget(progress.private.partners[0]))
    assert len(guess.vectors)
    np.testing.assert_array_equal(guess.vectors, same.vectors)
    np.testing.assert_array_equal(guess.ratings, same.ratings)
    assert outcome.scores.tolist() == scored.scores.tolist()


@pytest.mark.parametrize(("name", "victim"), [("accuracy reference", 1), ("training", 1), ("model extraction", 0)])
def test_what_is_concluded_from_answers_is_not_either(data: Interactions, name: str, victim: int) -> None:
    pytest.importorskip("tenseal")
    job = job_of("fedcore", data)
    *_, outcome, scored = looks(job, name, lambda progress: forget(progress.private.partners[victim]))
    assert outcome.scores.max() > 0
    assert outcome.scores.tolist() == scored.scores.tolist()


def alter_answers(progress: Progress) -> None:
    """Other scores are seen to have come back."""
    recorded = progress.transcript.recorded
    for place, one in enumerate(recorded):
        message: Any = one.message
        if type(message).__name__ == "Scores":
            scores = Ragged(message.scores.starts, message.scores.values[::-1].copy())
            recorded[place] = one._replace(message=replace(message, scores=scores))


def test_what_is_concluded_from_answers_is_made_of_them(data: Interactions) -> None:
    pytest.importorskip("tenseal")
    *_, outcome, worse = looks(job_of("fedcore", data), "accuracy reference", alter_answers)
    assert outcome.scores.mean() > worse.scores.mean()


def alter_lists(progress: Progress) -> None:
    """Every client is seen to have listed other items: the next ones."""
    recorded = progress.transcript.recorded
    for place, one in enumerate(recorded):
        message: Any = one.message
        if ATTACKS["listed items"].reads(type(message)):
            items = Ragged(message.items.starts, (message.items.values + 1) % 60)
            recorded[place] = one._replace(message=replace(message, items=items))


def forget_all(progress: Progress) -> None:
    """All clients forget all that they have."""
    for name, value in vars(progress.private).items():
        if isinstance(value, np.ndarray):
            setattr(progress.private, name, np.zeros_like(value))


def test_what_a_server_guesses_is_made_of_uploads_and_of_nothing_else(data: Interactions) -> None:
    job = job_of("fedrec", data, rho=1)
    guess, other, outcome, worse = looks(job, "listed items", alter_lists)
    assert not np.array_equal(guess, other)
    assert outcome.scores.mean() > worse.scores.mean() + 0.05
    guess, same, outcome, scored = looks(job, "listed items", forget_all)
    np.testing.assert_array_equal(guess, same)
    assert outcome.scores.tolist() == scored.scores.tolist()


# --- The driver itself -----------------------------------------------------------------------------------


def probe(name: str, seats: tuple[Seat, ...], **fields: Any) -> Attack[Any]:
    """An attack that says how many messages it saw."""
    wanted: dict[str, Any] = {
        "look": lambda _before, view, _own: len(view),
        "judge": lambda seen, _truth: Outcome.of_victims(np.array([0]), np.array([float(seen)]), np.zeros(1)),
    }
    return Attack(name, seats, "nothing", "messages", "{score}", lambda _kind: True, **{**wanted, **fields})


def test_attacks_see_what_their_seats_saw(data: Interactions) -> None:
    """With server and client 3 in one boat, mail to nobody else is added; alone, the client sees its own."""
    server, client = Seat(Role.SERVER), Seat(Role.CLIENT, 3)
    views: dict[str, View] = {}

    def looking(name: str) -> Callable[[Any, View, Own], int]:
        def look(_before: Any, view: View, _own: Own) -> int:
            views[name] = view
            return len(view)

        return look

    seats = {"server": (server,), "client": (client,), "both": (server, client)}
    attacks = [probe(name, seat, look=looking(name)) for name, seat in seats.items()]
    assert [attack.role for attack in attacks] == ["server", "client", "server+client"]
    audited(job_of("fedrec", data, num_rounds=1), *attacks)
    assert {int(number) for one in views["client"] for number in one.numbers} == {3}
    assert len(views["both"]) == len(views["server"])
    assert {int(number) for one in views["server"] for number in one.numbers} == set(range(100))


def test_an_attacker_gets_its_own_data_that_it_declares_and_no_other(data: Interactions) -> None:
    job, seen = job_of("fedcore", data, inference="none"), list[Own]()

    def look(_before: Any, _view: View, own: Own) -> int:
        seen.append(own)
        return 0

    attack = probe("spy", (Seat(Role.PARTNER, 1),), look=look, own=("item_factors",))
    done = audited(job, attack)
    assert [set(own.holds) for own in seen] == [{"item_factors"}] * 3
    own_items = done.progress.private.partners[1].item_factors
    np.testing.assert_array_equal(seen[-1].holds["item_factors"], own_items)
    assert seen[0].settings["batch_size"] == 32
    missing = audited(job, probe("spy", (Seat(Role.PARTNER, 1),), own=("secrets",)))
    assert missing.left_out == {"spy": "the attacker has no secrets in this system"}


def test_attacks_with_one_look_share_its_guess_and_remember_it(data: Interactions) -> None:
    calls: list[int | None] = []

    def look(before: int | None, _view: View, _own: Own) -> int:
        calls.append(before)
        return (before or 0) + 1

    first = probe("first", (Seat(Role.SERVER),), look=look)
    done = audited(job_of("fedrec", data), first, replace(first, name="second"))
    assert calls == [None, 1]
    assert [finding.rounds for finding in done.findings] == [[1.0, 2.0]] * 2


def test_one_attack_that_fails_does_not_stop_the_others(data: Interactions) -> None:
    def fail(_before: Any, _view: View, _own: Own) -> int:
        raise HushrecError("it cannot start")

    def judge(_guess: Any, truth: Truth) -> Outcome:
        if truth.round_number == 1:
            raise HushrecError("not yet")
        return Outcome.of_victims(np.array([4]), np.ones(1), np.zeros(1))

    server = (Seat(Role.SERVER),)
    done = audited(job_of("fedrec", data), probe("a", server, look=fail), probe("b", server, judge=judge))
    assert done.left_out == {"a": "it cannot start"}
    (finding,) = done.findings
    assert (finding.attack.name, finding.rounds, finding.score) == ("b", [None, 1.0], 1.0)


def test_an_attack_of_others_may_fail_in_any_way_but_ours_may_not(data: Interactions) -> None:
    def fail(_before: Any, _view: View, _own: Own) -> int:
        raise KeyError("line 1\nline 2")

    def judge(_guess: Any, _truth: Truth) -> Any:
        return None

    server = (Seat(Role.SERVER),)
    others = [probe("a", server, look=fail), probe("b", server, judge=judge), probe("c", server)]
    done = audited(job_of("fedrec", data), *others)
    assert [finding.attack.name for finding in done.findings] == ["c"]
    assert done.left_out.keys() == {"a", "b"}
    assert done.left_out["a"] == r"KeyError: 'line 1\nline 2'"
    assert done.left_out["b"].startswith("AttributeError: ")
    with pytest.raises(KeyError):
        audited(job_of("fedrec", data), probe("listed items", server, look=fail))


def test_messages_are_there_while_a_round_is_told_of_and_forgotten_then(data: Interactions) -> None:
    counts: list[int] = []
    done = audit(
        job_of("fedrec", data),
        RuntimeOptions(1),
        lambda progress, _scores: counts.append(len({one.round_number for one in progress.transcript.recorded})),
    )
    assert counts == [1, 1]
    assert not done.progress.transcript.recorded


def test_an_interrupt_keeps_what_was_found_of_rounds_and_of_attacks(data: Interactions) -> None:
    def judge(_guess: Any, truth: Truth) -> Outcome:
        if truth.round_number == 2:
            raise KeyboardInterrupt
        return Outcome.of_victims(np.array([4]), np.ones(1), np.zeros(1))

    server = (Seat(Role.SERVER),)
    with pytest.raises(KeyboardInterrupt) as raised:
        audited(
            job_of("fedrec", data, num_rounds=3),
            probe("a", server),
            probe("b", server, judge=judge),
            probe("c", server),
        )
    interrupted = raised.value
    assert isinstance(interrupted, AuditInterruptedError)
    assert (interrupted.num_rounds, interrupted.behind) == (2, ["b", "c"])
    rounds = {finding.attack.name: len(finding.rounds) for finding in interrupted.found.findings}
    assert rounds == {"a": 2, "b": 1, "c": 1}


def test_an_interrupt_before_the_first_round_has_found_nothing(data: Interactions) -> None:
    def look(_before: Any, _view: View, _own: Own) -> int:
        raise KeyboardInterrupt

    with pytest.raises(AuditInterruptedError) as raised:
        audited(job_of("fedrec", data), probe("a", (Seat(Role.SERVER),), look=look))
    assert (raised.value.num_rounds, raised.value.behind, raised.value.found.findings) == (0, [], [])

"""The audit of data owners, on small runs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hushrec.audit.attacks import attacks_on
from hushrec.audit.driver import Audited, audit
from hushrec.audit.interactions import Interacted
from hushrec.audit.requests import asked_for
from hushrec.data import Interactions, owned, synthetic
from hushrec.draws import Draws
from hushrec.protocol import Recorded, Role, Transcript
from hushrec.protocol.transcript import Lengths
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, run_job
from hushrec.systems.drift.cipher import Letters, open_interactions, salt_of
from hushrec.systems.drift.members import owner_key

SMALL = {"epochs": 1, "parts": 2, "window": 64}


@pytest.fixture(scope="module")
def train() -> Interactions:
    data = synthetic(num_users=120, num_items=160, num_ratings=6000, seed=1)
    times = np.random.default_rng(0).permutation(len(data)).astype(np.int64)
    return owned(replace(data.as_signed(), timestamps=times), "4", 0)


def job_of(train: Interactions, system: str = "drift", **settings: Any) -> Job:
    known = SYSTEMS[system]
    return Job(known, known.configure(SMALL | settings), 0, train)


def audited(train: Interactions, threads: int = 1, system: str = "drift", **settings: Any) -> Audited:
    done = audit(job_of(train, system, **settings), RuntimeOptions(threads), lambda _progress, _scores: None)
    assert not done.progress.transcript.recorded
    return done


def scores(done: Audited) -> dict[str, float]:
    return {finding.attack.name: finding.score for finding in done.findings}


def transcript_of(train: Interactions, **settings: Any) -> Transcript:
    return run_job(job_of(train, **settings), RuntimeOptions(1, keep_payloads=True)).transcript


def test_one_block_per_request_hides_nothing(train: Interactions) -> None:
    """Theta 1: a request has one user, so every guess is right."""
    found = scores(audited(train, theta=1))
    assert found["request watching"] == found["score difference"] == found["gradient direction"] == 1.0
    assert found["gradient sign"] == 1.0
    groups = asked_for(transcript_of(train, theta=1).seen_by(Role.ORCHESTRATOR)).num_users
    assert len(groups)
    assert (groups == 1).all()


@pytest.mark.parametrize(("theta", "threshold"), [(2, "blocks"), (2, "users"), (20, "users")])
def test_a_threshold_blurs_requests_and_not_gradients(train: Interactions, theta: int, threshold: str) -> None:
    found = scores(audited(train, theta=theta, threshold=threshold))
    assert found["request watching"] < 0.95
    assert found["request watching"] < found["score difference"] < found["gradient direction"]
    assert found["gradient direction"] > 0.99
    assert found["gradient sign"] > 0.99
    asked = asked_for(transcript_of(train, theta=theta, threshold=threshold).seen_by(Role.ORCHESTRATOR))
    assert threshold == "blocks" or (asked.num_users == theta).all()


def test_all_that_was_learned_from_is_read(train: Interactions) -> None:
    """Recall counts all interactions that owners got; those learned from are those of the requests of Theta 1."""
    asked = asked_for(transcript_of(train, theta=1).seen_by(Role.ORCHESTRATOR))
    users = np.repeat(asked.numbers[~asked.is_item], np.diff(asked.group_starts) - 1)
    learned = set(zip(users.tolist(), asked.numbers[asked.is_item].tolist(), strict=True))
    of_user = np.bincount([user for user, _ in learned], minlength=train.num_users)
    expected = (of_user / np.bincount(train.users, minlength=train.num_users)).mean()
    assert scores(audited(train, theta=1))["interactions read"] == pytest.approx(expected)


def test_a_window_of_one_event_changes_nothing_about_it(train: Interactions) -> None:
    few = train.select(np.arange(len(train)) < 400)
    assert scores(audited(few, window=1))["gradient sign"] > 0.99


def test_chance_is_the_density_of_an_owners_items(train: Interactions) -> None:
    """One owner of everything, Theta 1: the mean over users of the share of items that they interacted with."""
    alone = owned(train, "1", 0)
    chances = {finding.attack.name: finding.chance for finding in audited(alone, theta=1).findings}
    asked = asked_for(transcript_of(alone, theta=1).seen_by(Role.ORCHESTRATOR))
    density = np.bincount(train.users, minlength=train.num_users) / train.num_items
    expected = density[np.unique(asked.numbers[~asked.is_item])].mean()
    assert chances["request watching"] == pytest.approx(expected)
    assert chances["gradient sign"] < chances["gradient direction"] == pytest.approx(expected)


@pytest.mark.parametrize("batch", [1, 3])
def test_flags_outside_are_read_and_inside_not(train: Interactions, batch: int) -> None:
    outside, inside = (
        {finding.attack.name: finding for finding in audited(train, batch=batch, flag=flag).findings}
        for flag in ("outside", "inside")
    )
    assert outside["flag reading"].score == 1.0 > outside["flag reading"].chance > 0.5
    assert inside["flag reading"].score == inside["flag reading"].chance == outside["flag reading"].chance
    assert outside["wire reading"].score == 0


def test_plain_messages_are_read(train: Interactions) -> None:
    assert scores(audited(train, encryption="none"))["wire reading"] == 1.0


def test_saros_is_an_open_book(train: Interactions) -> None:
    found = scores(audited(owned(train, "1", 0), system="saros"))
    assert found["request watching"] == found["wire reading"] == found["gradient sign"] == 1.0


def test_threads_change_nothing(train: Interactions) -> None:
    assert audited(train, threads=1).findings == audited(train, threads=2).findings


def test_every_round_is_looked_at_and_recall_grows(train: Interactions) -> None:
    findings = {finding.attack.name: finding for finding in audited(train, epochs=2).findings}
    on_sums = {"linked items", "foreign items", "foreign items read"}  # of which none come here
    assert set(findings) == {attack.name for attack in attacks_on(SYSTEMS["drift"])} - on_sums
    recall = findings["interactions read"].rounds
    assert len(recall) == 4
    assert recall == sorted(recall, key=float)
    for finding in findings.values():
        assert finding.interval is not None
        assert finding.interval[0] <= finding.score <= finding.interval[1]
        assert f"{finding.score:.1%}" in finding.said()
        assert "{" not in finding.said()


# --- What the other views hold ---------------------------------------------------------------------------


def test_the_orchestrator_sees_no_interaction_and_the_observer_nothing_else(train: Interactions) -> None:
    transcript = transcript_of(train)
    seen = {role: {type(one.message).__name__ for one in transcript.seen_by(role)} for role in Role}
    assert seen[Role.OBSERVER] == {"SentInteractions", "Lengths"}
    assert {"Wanted", "Vectors", "BlockGradients"} <= seen[Role.ORCHESTRATOR]
    assert {"SentInteractions", "OwnerKey"}.isdisjoint(seen[Role.ORCHESTRATOR])


def read_by_observers(transcript: Transcript) -> list[Recorded]:
    """What an observer sees besides lengths."""
    return [one for one in transcript.seen_by(Role.OBSERVER) if not isinstance(one.message, Lengths)]


def letters_to(transcript: Transcript, owner: int) -> list[Letters]:
    found = []
    for sent in read_by_observers(transcript):
        message: Any = sent.message
        assert sent.addressees is not None
        for place in np.flatnonzero(sent.addressees == owner).tolist():
            one = message.part(place, place + 1)
            salt = salt_of(int(one.salt_low[0]), int(one.salt_high[0]))
            found.append(Letters(one.sequences.values, one.flags.values, one.contents.values, salt))
    return found


@pytest.mark.parametrize("settings", [{}, {"flag": "inside"}, {"batch": 4}, {"batch": 4, "flag": "inside"}])
def test_messages_have_one_size_whoever_and_whatever_they_are_about(
    train: Interactions, settings: dict[str, Any]
) -> None:
    shapes = set()
    for sent in read_by_observers(transcript_of(train, **settings)):
        message: Any = sent.message
        shapes.add((message.flags.values.shape[1], message.contents.values.shape[1]))
    batch = settings.get("batch", 1)
    is_inside = "flag" in settings
    assert shapes == {(0 if is_inside else batch, batch * (9 if is_inside else 8) + 16)}


def test_an_owner_reads_its_own_interactions_only(train: Interactions) -> None:
    """With its key an owner opens all that it got, all of it about its items, and nothing that others got."""
    form, truth = job_of(train).config.plan.form, Interacted(train)
    transcript = transcript_of(train)
    for owner in range(4):
        key = owner_key(Draws(0), owner)
        held = truth.events.held[truth.events.held_starts[owner] : truth.events.held_starts[owner + 1]]
        for letters in letters_to(transcript, owner):
            opened = open_interactions(key, owner, form, letters)
            assert opened.is_sound.all()
            assert np.isin(opened.items, held).all()
        for other in set(range(4)) - {owner}:
            for letters in letters_to(transcript, other):
                assert not open_interactions(key, owner, form, letters).is_sound.any()
                assert not open_interactions(key, other, form, letters).is_sound.any()


def test_equal_interactions_have_unequal_messages(train: Interactions) -> None:
    contents = np.concatenate([one.contents for one in letters_to(transcript_of(train, epochs=2), 0)])
    assert len(np.unique(contents, axis=0)) == len(contents)

"""One person watched: what is concluded comes out of messages alone, and the truth only marks it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hushrec.data import Interactions
from hushrec.data.synthetic import synthetic
from hushrec.protocol import Ragged, Seat, Transcript
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import run_job
from hushrec.ui import privacy_watch
from hushrec.ui.privacy_readings import READERS
from hushrec.ui.privacy_sent import told
from hushrec.ui.privacy_watch import Scene, Watched, marked, scene_of, verdict, watch

ROUNDS = 2


@pytest.fixture(scope="module")
def data() -> Interactions:
    return synthetic(num_users=40, num_items=240, num_ratings=900, seed=3)


def scene(data: Interactions, name: str, with_denoisers: bool = False, **settings: Any) -> Scene:
    system = SYSTEMS[name]
    config = system.configure({**settings, "num_rounds": ROUNDS})
    return scene_of(system, config, data, user_with_many(data), 24, with_denoisers=with_denoisers)


def user_with_many(data: Interactions) -> int:
    """Somebody with a fair number of ratings, but not the most."""
    return int(np.argsort(np.bincount(data.users))[-11])


def rounds_of(one: Scene) -> list[Watched]:
    found: list[Watched] = []
    watch(one, found.append, lambda: False, threads=1)
    return found


def test_a_scene_has_the_person_among_others_and_all_items(data: Interactions) -> None:
    one = scene(data, "fedrec")
    user = user_with_many(data)
    assert one.job.train.num_users == 24
    assert one.job.train.num_items == data.num_items
    rows = data.by_user()
    assert one.own_items.tolist() == rows.items[rows.starts[user] : rows.starts[user + 1]].tolist()
    assert one.job.train.user_ids[one.person] == data.user_ids[user]


def test_one_upload_of_fedrec_plus_plus_tells_all_ratings(data: Interactions) -> None:
    one = scene(data, "fedrec++", rho=3)
    for watched in rounds_of(one):
        marks = marked(watched.said[0], one)
        assert watched.said[0].attack.name == "ratings from one upload"
        num_own = len(one.own_items)
        assert num_own > 15
        assert (marks.num_exact, marks.num_wrong) == (num_own, 0)
        assert verdict(watched, one) == (f"The server read {num_own} of {num_own} ratings of this person.", "read")


def test_items_with_another_rating_are_told_beside_those_that_are_read(data: Interactions) -> None:
    one = scene(data, "fedrec++", rho=3)
    watched = rounds_of(one)[0]
    said = watched.said[0]
    ratings = said.ratings.copy()
    ratings[:2] += 0.5
    sentence, _ = verdict(watched._replace(said=[said._replace(ratings=ratings)]), one)
    num_own = len(one.own_items)
    assert sentence == (
        f"The server read {num_own - 2} of {num_own} ratings of this person. "
        "It named 2 more of this person's items, with another rating."
    )


def test_secure_sums_leave_nothing_of_one_person(data: Interactions) -> None:
    one = scene(data, "fedrec", rho=0, secure_sums=True)
    for watched in rounds_of(one):
        sentence = "The server saw only sums over 24 people: nothing under this person's name."
        assert verdict(watched, one) == (sentence, "nothing")
        assert not watched.said
        assert watched.num_summed == 24
        # What is unnamed is told, and so is how much of it is the person's.
        assert watched.unnamed is not None
        assert watched.unnamed.num_own <= watched.unnamed.num_read
        assert not any("items" in told(*sent) for sent in watched.sent if sent.is_seen)


def test_without_rows_of_one_rater_sums_leave_nothing_at_all(data: Interactions) -> None:
    one = scene(data, "fedrec", rho=0, secure_sums=True, secure_least_raters=3)
    for watched in rounds_of(one):
        assert watched.unnamed is None or watched.unnamed.num_read == 0
        sentence = "The server saw only sums over 24 people: nothing of this person alone."
        assert verdict(watched, one) == (sentence, "nothing")


def test_shares_leave_a_list(data: Interactions) -> None:
    one = scene(data, "fedrec++", rho=3, shares=2, denoisers=2, resample="once")
    names = {said.attack.name for said in rounds_of(one)[-1].said}
    assert "listed items" in names
    assert "ratings from one upload" not in names


def test_denoisers_that_help_tell_what_is_virtual(data: Interactions) -> None:
    settings = {"rho": 3, "shares": 2, "denoisers": 2, "resample": "once"}
    alone, helped = (scene(data, "fedrec++", with_denoisers=helps, **settings) for helps in (False, True))
    assert "noise match" not in {said.attack.name for said in rounds_of(alone)[-1].said}
    last = rounds_of(helped)[-1]
    marks = marked(last.said[0], helped)
    own = len(helped.own_items)
    assert last.said[0].attack.name == "noise match"
    assert (marks.num_right, marks.num_wrong) == (own, 0)
    sentence = f"The server, with the denoisers, named {own} of {own} items of this person."
    assert verdict(last, helped) == (sentence, "read")


def test_lists_that_are_drawn_anew_are_intersected(data: Interactions) -> None:
    one = scene(data, "fedrec++", rho=3, shares=2, denoisers=2)
    first, last = rounds_of(one)
    named = [{said.attack.name: len(said.items) for said in watched.said} for watched in (first, last)]
    num_own = len(one.own_items)
    assert "intersection" not in named[0]
    assert num_own <= named[1]["intersection"] < named[1]["listed items"]


def test_the_truth_changes_no_conclusion(data: Interactions, monkeypatch: pytest.MonkeyPatch) -> None:
    def conclusions() -> dict[str, list[Any]]:
        last = rounds_of(scene(data, "fedrec++", rho=3))[-1]
        return {said.attack.name: [said.items.tolist(), said.ratings.tolist()] for said in last.said}

    honest = conclusions()
    assert len(honest) >= 3
    lie = lambda pairs, _train: np.zeros(len(pairs), np.bool_)  # noqa: E731
    monkeypatch.setattr(privacy_watch, "is_own", lie)
    monkeypatch.setattr(Scene, "own_items", property(lambda self: np.array([0], np.int32)))
    np.testing.assert_equal(conclusions(), honest)


def test_which_attack_is_strongest_is_not_told_by_the_person(data: Interactions) -> None:
    """By its F1 on the others alone: an attack that is right about this person only is not the strongest."""
    one = scene(data, "fedrec++", rho=3)
    train, person = one.job.train, one.person
    own = privacy_watch.clients_of(np.array([person * 2**31]))[0]
    assert own == person
    only_person = privacy_watch.Named.without_ratings(person * 2**31 + one.own_items.astype(np.int64))
    assert privacy_watch.f1_of_others(only_person, train, person) == 0.0


def test_what_was_sent_is_what_the_transcript_has(data: Interactions) -> None:
    one = scene(data, "fedrec++", rho=3)
    kept: list[Transcript] = []
    messages: list[Any] = []

    def keep(progress: Any) -> None:
        kept.append(progress.transcript)
        messages.extend(progress.transcript.seen_by(Seat(one.seats[0].role)))
        progress.transcript.forget()

    run_job(one.job, RuntimeOptions(threads=1, keep_payloads=True), on_round=keep)
    uploads = [m for m in messages if type(m.message).__name__ == "ItemGradients" and one.person in m.numbers]
    watched = rounds_of(one)
    assert len(uploads) == ROUNDS
    for upload, seen in zip(uploads, watched, strict=True):
        place = upload.numbers.tolist().index(one.person)
        items, rows = upload.message.items, upload.message.gradients
        own = slice(items.starts[place], items.starts[place + 1])
        sent = [one for one in seen.sent if type(one.message.message).__name__ == "ItemGradients"]
        shown = told(*sent[0], most_columns=1000)
        assert shown["items"] == items.values[own].tolist()
        assert shown["seen"]
        np.testing.assert_allclose(shown["columns"][0]["rows"], rows.values[own], rtol=1e-4)
        noise = [one for one in seen.sent if type(one.message.message).__name__ == "Noise"]
        assert noise
        assert told(*noise[0])["sealed"]
        assert not noise[0].is_seen
        assert set(told(*noise[0])["items"]) <= set(shown["items"])


def test_a_message_may_hold_nothing(data: Interactions) -> None:
    """As that of a denoiser, to whom nobody sent noise."""
    one = scene(data, "fedrec")
    sent = next(sent for sent in rounds_of(one)[0].sent if hasattr(sent.message.message, "gradients"))
    message = sent.message.message
    empty = replace(
        message, **{name: Ragged.one(message.column(name).values[:0]) for name in ("items", "gradients")}
    )
    shown = told(sent.message._replace(message=empty), 0, True)
    assert (shown["items"], shown["columns"][0]["rows"]) == ([], [])


def test_masked_numbers_are_words_of_64_bits(data: Interactions) -> None:
    one = scene(data, "fedrec", rho=0, secure_sums=True)
    sent = [told(*sent) for sent in rounds_of(one)[0].sent]
    masked = next(message for message in sent if message["type"] == "MaskedNumbers")
    (column,) = masked["columns"]
    assert column["kind"] == "words"
    assert column["count"] == 240 * 21
    assert all(len(word) == 16 and int(word, 16) >= 0 for word in column["numbers"])


@pytest.mark.parametrize(
    "name",
    [
        "sdcf",
        "fcf",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("ptf-fedrec", "fedrec-bpr", "fedncf", "metamf")),
    ],
)
def test_other_systems_can_be_watched(data: Interactions, name: str) -> None:
    settings = {"participation": 1.0} if name == "fedncf" else {}
    one = scene(data, name, **settings)
    found = rounds_of(one)
    assert len(found) == ROUNDS
    assert all(watched.sent for watched in found)
    sentence, tone = verdict(found[-1], one)
    assert sentence.startswith("The server ")
    assert sentence.endswith(".")
    assert tone in ("read", "some", "nothing")


def test_every_reader_is_of_an_attack() -> None:
    from hushrec.audit.attacks import ATTACKS

    assert set(READERS) <= set(ATTACKS)

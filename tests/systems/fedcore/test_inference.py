"""FedCORE's inference: visitors are served under encryption, and what goes wrong is told in one line."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from hushrec.data import PartnerRows
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.protocol import AnySystem, Message, Ragged, Reply, Transcript
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import InProcess, RuntimeOptions
from hushrec.systems.fedcore.encrypted_scores import REQUEST_BYTES
from hushrec.systems.fedcore.inference import (
    EncryptedScores,
    EncryptedVectors,
    PublicKeys,
    Scores,
    Serve,
    Served,
    Visits,
)
from hushrec.systems.fedcore.model import own_model, partner_model
from hushrec.systems.fedcore.partners import Partnership
from hushrec.systems.fedcore.visitors import names_of
from systems.partner_runs import ids_of, partners
from systems.runs import Finished, Ratings, run, some_partners

FEDCORE = SYSTEMS["fedcore"]
QUADRATIC = {"model": "neucf", "activation": "quadratic", "learning_rate": 0.01}
SERVING = {"inference": "ckks", "batch_size": 16, "num_rounds": 2, "num_asked": 3}


@pytest.fixture(autouse=True)
def tenseal() -> None:
    pytest.importorskip("tenseal")


def served(ratings: Ratings, **options: Any) -> Finished:
    return run("fedcore", ratings, **{**SERVING, **options})


@cache
def plain() -> Finished:
    """Two partners, all defaults; not to be changed."""
    return served(some_partners(2))


def plain_scores(finished: Finished, place: int) -> np.ndarray:
    """Of the visitors whom a partner asked about: scores of its items with the home partner's vectors."""
    model = partner_model(finished.private, finished.config.agreement, None)
    rows, partner = finished.private.rows, finished.private.partners[place]
    users = (rows.user_starts[place] + partner.asked[partner.asked >= 0]).astype(np.int32)
    return model.score(users)[:, rows.item_starts[place] : rows.item_starts[place + 1]]


def answers(finished: Finished, place: int) -> np.ndarray:
    partner = finished.private.partners[place]
    return partner.answers[partner.asked >= 0, : len(partner.item_factors)]


# --- What comes back ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [{}, QUADRATIC], ids=["pmf", "neucf"])
@pytest.mark.parametrize("num_partners", [2, 3])
def test_decrypted_scores_are_the_plain_ones(values: dict[str, Any], num_partners: int) -> None:
    """Within 1e-5, of every visitor that was asked about, whatever partner knows it."""
    finished = served(some_partners(num_partners), **values)
    for place, partner in enumerate(finished.private.partners):
        assert np.count_nonzero(partner.asked >= 0) == 3
        assert not partner.is_rated[partner.asked].any(), "only visitors are asked about"
        np.testing.assert_allclose(answers(finished, place), plain_scores(finished, place), atol=1e-5)
    facts = FEDCORE.result.facts(finished.private, finished.config)
    assert (facts["visitors asked about"], facts["visitors served"]) == (3 * num_partners, 3 * num_partners)
    assert 0 < facts["largest error of encrypted scores"] < 1e-5
    counts = np.concatenate([sent.message.num_served for sent in finished.sent(Served)][-1:])
    assert counts.tolist() == [3] * num_partners


def test_the_fact_of_the_largest_error_tells_a_wrong_score() -> None:
    finished = served(some_partners(2))
    finished.private.partners[1].answers[2, 4] += 0.5
    facts = FEDCORE.result.facts(finished.private, finished.config)
    assert facts["largest error of encrypted scores"] == pytest.approx(0.5, abs=1e-4)


def test_nothing_is_asked_before_the_last_round() -> None:
    finished = served(some_partners(2), num_rounds=3)
    assert {sent.round_number for sent in finished.sent(Serve)} == {3}


def test_nobody_but_the_home_partner_sees_a_vector_or_a_score() -> None:
    """Visitors are named by hashes, vectors and scores are ciphertexts; plain scores go to who asked only."""
    finished = served(some_partners(2), num_asked=2)
    for mail in finished.sent(Visits):
        for place, number in enumerate(mail.numbers):
            partner = finished.private.partners[number]
            names = names_of(ids_of(finished.private, partner)[0][partner.asked[partner.asked >= 0]])
            np.testing.assert_array_equal(mail.message.names.part(place, place + 1).values, names)
    wire = b"".join(mail.message.vectors.values.tobytes() for mail in finished.sent(EncryptedVectors))
    for partner in finished.private.partners:
        for vector in partner.shown_users[partner.is_rated]:
            assert vector.tobytes() not in wire
            assert vector.astype(np.float64).tobytes() not in wire
    assert len(wire) == 4 * REQUEST_BYTES
    tallies = {kind: finished.transcript.total(kind).messages for kind in (PublicKeys, Scores)}
    assert tallies == {PublicKeys: 2, Scores: 2}


@pytest.mark.parametrize("top_k", [1, 4, 1000])
def test_with_top_k_only_places_come_back_and_they_are_the_right_ones(top_k: int) -> None:
    finished, exact = served(some_partners(2), top_k=top_k), plain()
    for place, partner in enumerate(finished.private.partners):
        count = min(top_k, len(partner.item_factors))
        expected, found = plain_scores(exact, place), answers(finished, place)
        assert (np.isfinite(found).sum(axis=1) == count).all()
        for scores, ranks in zip(expected, found, strict=True):
            best = np.argsort(-np.where(np.isnan(ranks), -np.inf, ranks))[:count]
            np.testing.assert_allclose(scores[best], np.sort(scores)[::-1][:count], atol=2e-5)
            assert sorted(ranks[np.isfinite(ranks)], reverse=True) == list(range(count, 0, -1))
    sent = [value for mail in finished.sent(Scores) for value in mail.message.scores.values]
    assert all(value == int(value) for value in sent), "places, not scores"
    assert "largest error of encrypted scores" not in FEDCORE.result.facts(finished.private, finished.config)
    own = own_model(finished.private, finished.config.agreement, (1.0, 5.0))
    visitor = finished.private.partners[0].asked[:1]
    listed = own.score(visitor)[0]
    assert np.isfinite(listed).sum() == min(top_k, len(finished.private.partners[0].item_factors))
    assert (own.predict(visitor, np.array([0], np.int32)) >= 1).all(), "ranks are no ratings"


@pytest.mark.parametrize("budget", [1, 2])
def test_a_budget_limits_what_a_partner_answers(budget: int) -> None:
    finished = served(some_partners(2), query_budget=budget)
    for place in range(2):
        is_served = np.isfinite(answers(finished, place)).all(axis=1)
        assert is_served.sum() == budget
        np.testing.assert_allclose(
            answers(finished, place)[is_served], plain_scores(finished, place)[is_served], atol=1e-5
        )
    facts = FEDCORE.result.facts(finished.private, finished.config)
    assert (facts["visitors asked about"], facts["visitors served"]) == (6, 2 * budget)
    for mail in finished.sent(EncryptedVectors):
        assert (mail.message.places.lengths <= budget).all()


def test_noise_is_on_the_vectors_that_are_shown_and_nowhere_else() -> None:
    exact, noised = plain(), served(some_partners(2), inference_noise=0.2)
    np.testing.assert_array_equal(exact.private.user_factors, noised.private.user_factors)
    np.testing.assert_array_equal(exact.private.shown_users, exact.private.user_factors)
    difference = np.abs(noised.private.shown_users - noised.private.user_factors)
    assert difference.mean() == pytest.approx(0.2, rel=0.2), "the mean size of Laplace noise is its scale"
    for place in range(2):
        np.testing.assert_allclose(answers(noised, place), plain_scores(noised, place), atol=1e-5)
        # Vectors are of noise 0.2, items' of about 0.1: scores move by some hundredths.
        assert np.abs(answers(noised, place) - answers(exact, place)).mean() > 1e-3
    own = [partner_model(one.private, one.config.agreement, None) for one in (exact, noised)]
    users = np.flatnonzero(exact.private.partners[0].is_rated).astype(np.int32)
    np.testing.assert_array_equal(own[0].score(users), own[1].score(users))


def test_a_visitor_whom_nobody_knows_is_not_served() -> None:
    """n is at no partner: a has only an account for it. v is b's user."""
    ratings = partners(
        a={"x": {"p": 4.0, "q": 2.0}, "y": {"p": 1.0}}, b={"x": {"r": 2.0}, "v": {"r": 5.0, "s": 1.0}}
    )
    rows = with_accounts(ratings.rows, ["n", "v"])
    finished = served(Ratings(rows, ratings.num_items), num_factors=2)
    one = finished.private.partners[0]
    names = ids_of(finished.private, one)[0]
    found = {
        str(names[visitor]): bool(np.isfinite(own).any())
        for visitor, own in zip(one.asked, one.answers, strict=True)
        if visitor >= 0
    }
    assert found == {"n": False, "v": True}
    facts = FEDCORE.result.facts(finished.private, finished.config)
    assert (facts["visitors asked about"], facts["visitors served"]) == (2, 1)


def with_accounts(rows: PartnerRows, names: list[str]) -> PartnerRows:
    """The first partner has accounts more, without ratings."""
    count = int(rows.user_starts[1])
    user_ids = np.concatenate([rows.user_ids[:count], names, rows.user_ids[count:]])
    user_starts = rows.user_starts + np.where(np.arange(len(rows.user_starts)) > 0, len(names), 0)
    return replace(rows, user_ids=user_ids, user_starts=user_starts)


@pytest.mark.parametrize(
    "values",
    [{"inference": "none"}, {"num_asked": 0}, {"model": "neucf", "activation": "relu"}],
)
def test_who_cannot_or_will_not_be_served_is_not_asked_about(values: dict[str, Any]) -> None:
    """auto leaves NeuCF with ReLU out."""
    finished = run("fedcore", some_partners(2), batch_size=16, num_rounds=1, **values)
    assert not finished.sent(Serve)
    assert "visitors asked about" not in FEDCORE.result.facts(finished.private, finished.config)


# --- What goes wrong ---------------------------------------------------------------------------------------


Fault = Callable[[Message], Message | None]


def nothing(_message: Message) -> None:
    """The letter never comes."""


def with_fault(kind: type[Message], fault: Fault) -> AnySystem:
    """FedCORE whose partners send one type of mail wrong."""
    serve = FEDCORE.handlers[Serve]

    def handle(*arguments: Any) -> Reply:
        reply = serve.answer(*arguments)
        mail = []
        for sealed in reply.mail:
            message = fault(sealed.message) if type(sealed.message) is kind else sealed.message
            mail += [] if message is None else [replace(sealed, message=message)]
        return replace(reply, mail=tuple(mail))

    return replace(FEDCORE, handlers={**FEDCORE.handlers, Serve: replace(serve, answer=handle)})


def changed(field: str, change: Callable[[np.ndarray], np.ndarray]) -> Fault:
    """One field of a message of a cohort of one with other values."""

    def fault(message: Any) -> Message:
        column = getattr(message, field)
        if isinstance(column, Ragged):
            return replace(message, **{field: Ragged.one(change(column.values.copy()))})
        return replace(message, **{field: change(column)})

    return fault


def flipped(values: np.ndarray) -> np.ndarray:
    """Every hundredth byte another."""
    flat = values.reshape(-1)
    flat[5::100] ^= 0x5A
    return values


def twice_the_scores(message: Message) -> Message:
    """Well-formed ciphertexts, more than vectors were sent: who lies so would have anything decrypted."""
    assert isinstance(message, EncryptedScores)
    doubled = Ragged.one(np.tile(message.scores.values, 2))
    return replace(message, num_visitors=2 * message.num_visitors, scores=doubled)


FAULTS: list[tuple[str, type[Message], Fault]] = [
    ("no letter with keys", PublicKeys, nothing),
    ("no keys", PublicKeys, changed("keys", lambda keys: keys[:0])),
    ("half of the keys", PublicKeys, changed("keys", lambda keys: keys[: len(keys) // 2])),
    ("damaged keys", PublicKeys, changed("keys", flipped)),
    ("damaged vectors", EncryptedVectors, changed("vectors", flipped)),
    ("vectors that are noise", EncryptedVectors, changed("vectors", lambda rows: rows[:, ::-1].copy())),
    ("damaged scores", EncryptedScores, changed("scores", flipped)),
    ("scores cut off", EncryptedScores, changed("scores", lambda scores: scores[:-1])),
    ("scores of nobody", EncryptedScores, changed("scores", lambda scores: scores[:0])),
    ("more visitors than were sent", EncryptedScores, changed("num_visitors", lambda count: count * 2)),
    ("fewer visitors than were sent", EncryptedScores, changed("num_visitors", lambda count: count - 1)),
    ("too few scores", Scores, changed("scores", lambda scores: scores[:-1])),
    ("scores of other items", Scores, changed("scores", lambda scores: np.concatenate([scores, scores]))),
]


ONE_ROUND = {"num_rounds": 1, "num_asked": 2, "num_factors": 5}


@cache
def without_faults() -> Finished:
    return served(some_partners(2), **ONE_ROUND)


@pytest.mark.parametrize(
    ("kind", "fault"), [(kind, fault) for _, kind, fault in FAULTS], ids=[f[0] for f in FAULTS]
)
def test_what_cannot_be_used_is_refused_in_one_line_and_the_round_can_be_repeated(
    kind: type[Message], fault: Fault
) -> None:
    """After the fault the same round, without it, gives what a run without faults gives."""
    ratings, draws = some_partners(2), Draws(0)
    config, expected = FEDCORE.configure({**SERVING, **ONE_ROUND}), without_faults()
    private = FEDCORE.enrol(np.arange(2, dtype=np.int32), ratings.rows, ratings.num_items, config, draws)
    start = FEDCORE.start(2, ratings.num_items, config, draws)
    options = RuntimeOptions(threads=1, cohort_size=1)
    broken = InProcess(with_fault(kind, fault), config, draws, private, Transcript(), options)
    with pytest.raises(HushrecError, match=r"\A[^\n]+; [^\n]+\Z|\A[^\n]+: [^\n]+\Z"):
        broken.run_round(start, 1)
    state = InProcess(FEDCORE, config, draws, private, Transcript(), options).run_round(start, 1)
    np.testing.assert_array_equal(state.digests, expected.states[-1].digests)
    for field in ("user_factors", "item_factors", "asked", "helpers", "owed"):
        np.testing.assert_array_equal(getattr(private, field), getattr(expected.private, field))
    np.testing.assert_allclose(private.answers, expected.private.answers, atol=1e-5)


@pytest.mark.parametrize("num_items", [0, 5000])
def test_who_asks_for_another_number_of_scores_is_not_answered_again(num_items: int) -> None:
    """One question was agreed on: with more items a partner would have more decrypted of a visitor."""
    ratings, draws = some_partners(2), Draws(0)
    config = FEDCORE.configure({**SERVING, **ONE_ROUND})
    private = FEDCORE.enrol(np.arange(2, dtype=np.int32), ratings.rows, ratings.num_items, config, draws)
    start, options = FEDCORE.start(2, ratings.num_items, config, draws), RuntimeOptions(threads=1, cohort_size=1)
    fault = changed("num_items", lambda count: np.full_like(count, num_items))
    with pytest.raises(HushrecError, match=r"\A[^\n]+; [^\n]+\Z|\A[^\n]+: [^\n]+\Z"):
        InProcess(with_fault(Visits, fault), config, draws, private, Transcript(), options).run_round(start, 1)
    with pytest.raises(HushrecError, match="asks again, about others; one question was agreed on"):
        InProcess(FEDCORE, config, draws, private, Transcript(), options).run_round(start, 1)


def test_nobody_has_more_decrypted_than_it_was_sent() -> None:
    """The partner that has the key refuses; no decrypted score leaves it."""
    ratings, draws, transcript = some_partners(2), Draws(0), Transcript()
    config = FEDCORE.configure({**SERVING, **ONE_ROUND})
    private = FEDCORE.enrol(np.arange(2, dtype=np.int32), ratings.rows, ratings.num_items, config, draws)
    start, options = FEDCORE.start(2, ratings.num_items, config, draws), RuntimeOptions(threads=1, cohort_size=1)
    runtime = InProcess(with_fault(EncryptedScores, twice_the_scores), config, draws, private, transcript, options)
    with pytest.raises(HushrecError, match=r"^encrypted scores are cut off, or of other visitors; begin"):
        runtime.run_round(start, 1)
    assert transcript.total(Scores).messages == 0


@pytest.mark.parametrize("value", [-1.0, 1000.0, np.nan])
def test_places_of_no_item_are_refused(value: float) -> None:
    def fault(scores: np.ndarray) -> np.ndarray:
        scores[0] = value
        return scores

    ratings, draws = some_partners(2), Draws(0)
    config = FEDCORE.configure({**SERVING, "num_rounds": 1, "num_asked": 1, "num_factors": 5, "top_k": 3})
    private = FEDCORE.enrol(np.arange(2, dtype=np.int32), ratings.rows, ratings.num_items, config, draws)
    start = FEDCORE.start(2, ratings.num_items, config, draws)
    options = RuntimeOptions(threads=1, cohort_size=1)
    runtime = InProcess(
        with_fault(Scores, changed("scores", fault)), config, draws, private, Transcript(), options
    )
    with np.errstate(invalid="ignore"), pytest.raises(HushrecError, match="a partner returned places of no item"):
        runtime.run_round(start, 1)


def test_names_that_nobody_knows_are_answered_with_nothing() -> None:
    """All visitors are strangers then: the round ends, nobody is served."""
    ratings, draws = some_partners(2), Draws(0)
    config = FEDCORE.configure({**SERVING, "num_rounds": 1, "num_factors": 5})
    private = FEDCORE.enrol(np.arange(2, dtype=np.int32), ratings.rows, ratings.num_items, config, draws)
    fault = changed("names", lambda names: names ^ 1)
    system = with_fault(Visits, fault)
    runtime = InProcess(system, config, draws, private, Transcript(), RuntimeOptions(threads=1, cohort_size=1))
    state = runtime.run_round(FEDCORE.start(2, ratings.num_items, config, draws), 1)
    assert state.is_present.all()
    assert np.isnan(private.answers).all()
    assert FEDCORE.result.facts(private, config)["visitors served"] == 0


def test_a_partner_lost_while_visitors_are_served_leaves_what_the_others_have() -> None:
    """Lost before it decrypts: visitors that it knows are not served, those of the third are."""
    asks = iter(range(100))

    def losses(_round: int, request: type, to: np.ndarray) -> np.ndarray:
        return (to == 2) & (request is Serve) & (next(asks) == 2 if request is Serve else False)

    finished = served(some_partners(3), losses=losses, num_asked=8)
    assert finished.states[-1].is_present.tolist() == [True, True, False]
    for place in (0, 1):
        partner, found = finished.private.partners[place], answers(finished, place)
        helpers = partner.helpers[partner.asked >= 0]
        is_served = np.isfinite(found).all(axis=1)
        assert is_served.any()
        assert not is_served.all()
        np.testing.assert_array_equal(is_served, helpers == 1 - place)
        np.testing.assert_allclose(found[is_served], plain_scores(finished, place)[is_served], atol=1e-5)


def test_all_lost_while_visitors_are_served_is_an_error() -> None:
    def losses(_round: int, request: type, to: np.ndarray) -> np.ndarray:
        return np.full(len(to), request is Serve)

    with pytest.raises(
        HushrecError, match=r"^no partner is left to serve visitors; bring them back and use --resume$"
    ):
        served(some_partners(2), losses=losses)


def test_asked_again_a_partner_sends_what_gives_the_same_scores() -> None:
    """Ciphertexts are drawn anew each time; what they decrypt to is the same."""
    serve = FEDCORE.handlers[Serve]

    def twice(cohort: Any, request: Any, config: Any, draws: Any) -> Reply:
        serve.answer(cohort, request, config, draws)
        return serve.answer(cohort, request, config, draws)

    def change(system: AnySystem) -> AnySystem:
        return replace(system, handlers={**system.handlers, Serve: replace(serve, answer=twice)})

    one, other = plain(), served(some_partners(2), change=change)
    np.testing.assert_allclose(other.private.answers, one.private.answers, atol=1e-5)
    np.testing.assert_array_equal(other.private.helpers, one.private.helpers)


def test_the_own_model_serves_visitors_with_answers_only() -> None:
    """Who was not asked about gets the mean user's scores; own users their own; others' items nobody's."""
    finished = plain()
    own = own_model(finished.private, finished.config.agreement, (1.0, 5.0))
    private: Partnership = finished.private
    partner, last = private.partners[0], len(private.partners[0].item_factors)
    found = own.score(partner.asked)
    np.testing.assert_allclose(found[:, :last], plain_scores(finished, 0), atol=1e-5)
    assert (found[:, last:] == -np.inf).all()
    mean = partner.user_factors[partner.is_rated].mean(axis=0)
    stranger = np.setdiff1d(np.flatnonzero(~partner.is_rated), partner.asked)[:1].astype(np.int32)
    np.testing.assert_allclose(own.score(stranger)[0, :last], partner.item_factors @ mean, rtol=1e-4, atol=1e-6)
    pairs = np.repeat(partner.asked, last), np.tile(np.arange(last, dtype=np.int32), 3)
    np.testing.assert_allclose(own.predict(*pairs).reshape(3, -1), np.clip(found[:, :last], 1, 5), atol=1e-6)

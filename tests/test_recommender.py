import copy
import inspect
import pickle
import pydoc
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import hushrec
from hushrec.data import Deal, Interactions, Split, copies, owned
from hushrec.data.holdings import PARTNERS
from hushrec.data.holdings.owners import owners_of
from hushrec.errors import HushrecError
from hushrec.estimators import ESTIMATORS
from hushrec.evaluation import feedback
from hushrec.evaluation.held_back import held_back_names
from hushrec.protocol import result_arrays
from hushrec.recommender import Recommender
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import run
from hushrec.runs.lists import Recommendation
from hushrec.runs.record import read_run
from hushrec.runs.run_settings import RunSettings
from hushrec.runtime.checkpoint import digest
from systems.runs import held, short

KINDS = list(ESTIMATORS.values())
EXPLICIT = [kind for kind in KINDS if kind.system.feedback is feedback.EXPLICIT and kind is not hushrec.NeuCF]
SIGNED = [kind for kind in KINDS if kind.system.feedback is feedback.SIGNED]
SHORT = {"num_rounds": 10, "num_factors": 5}
ONE_THREAD = hushrec.RuntimeOptions(threads=1)


@pytest.fixture(scope="module")
def data() -> Interactions:
    return hushrec.load("synthetic:users=80,items=50,ratings=1500")


@pytest.fixture(scope="module")
def split(data: Interactions) -> Any:
    return next(hushrec.k_folds(data))


@pytest.fixture(scope="module")
def model(split: Any) -> Recommender:
    return hushrec.FedRec(preset="paper", rho=1, options=ONE_THREAD, **SHORT).fit(split.train)


def split_for(kind: type[Recommender], data: Interactions) -> Split:
    """Training and test data, held by the parties that the system is for."""
    is_dealt = kind.system.holders is PARTNERS
    return next(copies(data, Deal(), 0)) if is_dealt else next(hushrec.k_folds(data))


def brief(kind: type[Recommender]) -> dict[str, Any]:
    """Settings for a fit of a moment."""
    return short(kind.system.name, num_rounds=10)


def factors(model: Recommender) -> str:
    """Digest of all that the model has learned."""
    _, progress = model._require_fitted()
    private = result_arrays(progress.private)
    return digest(result_arrays(progress.state) | {f"own {name}": array for name, array in private.items()})


# --- As in scikit-learn ------------------------------------------------------------------------------------


def test_every_system_has_an_estimator() -> None:
    assert [kind.system.name for kind in ESTIMATORS.values()] == list(SYSTEMS)
    for class_name, kind in ESTIMATORS.items():
        assert kind.system is SYSTEMS[kind.system.name]
        assert class_name == kind.__name__ == kind.system.about.class_name
        assert getattr(hushrec, class_name) is kind


@pytest.mark.parametrize("kind", KINDS)
def test_settings_are_seen_by_editors_and_help(kind: type[Recommender]) -> None:
    """By all that look at a signature: names, types and defaults are those of the config, and only those."""
    hints, shown = get_type_hints(kind.system.config), dict(inspect.signature(kind).parameters)
    assert {one.kind for one in shown.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert list(shown)[-2:] == ["seed", "options"]
    del shown["seed"], shown["options"]
    presets = kind.system.about.presets
    if presets:
        usual = None if "general" in presets else next(iter(presets))
        assert shown.pop("preset").default == usual
    assert list(shown) == list(hints)
    page = pydoc.plain(pydoc.render_doc(kind))
    assert f"class {kind.__name__}" in page.splitlines()[2]
    assert kind.system.about.title in page
    for entry in fields(kind.system.config):
        assert (shown[entry.name].default, shown[entry.name].annotation) == (entry.default, hints[entry.name])
        assert f"    {entry.name}: {entry.metadata['help']} (default {entry.default!r})" in page


@pytest.mark.parametrize("kind", KINDS)
def test_models_are_copied_and_pickled(kind: type[Recommender], data: Interactions) -> None:
    """Before the fit and after it; what comes back is of the same class, and recommends the same."""
    model = kind(seed=3, options=ONE_THREAD, **short(kind.system.name, num_rounds=1))
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(again) is kind
        assert (again.config, again.seed, again.options) == (model.config, 3, ONE_THREAD)
        with pytest.raises(HushrecError, match="is not fitted"):
            again.recommend(1)
    model.fit(split_for(kind, data).train)
    user = model.ranker().train.user_ids[0]
    for again in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert factors(again) == factors(model)
        assert again.recommend(user, min_raters=0) == model.recommend(user, min_raters=0)
        assert (
            again._require_fitted()[1].transcript.sent_bytes()
            == model._require_fitted()[1].transcript.sent_bytes()
        )


@pytest.mark.parametrize("kind", KINDS)
def test_constructors_hold_settings_only(kind: type[Recommender]) -> None:
    model = kind(seed=5, options=ONE_THREAD, **brief(kind))
    assert (model.config.num_rounds, model.seed) == (10, 5)
    assert model.config == kind.system.configure(brief(kind))
    assert model.options is ONE_THREAD
    assert repr(model).startswith(f"{kind.__name__}(")
    assert ("epochs=10" if kind in SIGNED else "num_rounds=10") in repr(model)
    assert kind().config == SYSTEMS[model.system.name].config()


@pytest.mark.parametrize("kind", KINDS)
def test_fit_returns_the_model_and_tells_every_round(kind: type[Recommender], data: Interactions) -> None:
    split, model, told = split_for(kind, data), kind(options=ONE_THREAD, **brief(kind)), list[int]()
    assert model.fit(split.train, on_round=lambda progress: told.append(progress.round_number)) is model
    assert told == list(range(1, 11))
    metrics = model.evaluate(split.test, at=(5, 10))
    lists = {f"{name}@{k}" for name in ("Precision", "Recall", "HR", "MRR", "NDCG", "MAP") for k in (5, 10)}
    more = {feedback.EXPLICIT: {"MAE", "RMSE"}, feedback.SIGNED: set(held_back_names((5, 10)))}
    apart = {name for name in metrics if name.endswith((", warm", ", cold"))}  # where some test rows are cold
    assert set(metrics) - apart == lists | more.get(kind.system.feedback, set())
    assert all(type(value) is float for value in metrics.values())


def test_owners_are_those_of_the_data(data: Interactions) -> None:
    """Without any, five at random; where one place learns, one."""
    small = {"epochs": 1, "num_factors": 4, "options": ONE_THREAD}
    dealt, by_two = hushrec.DRIFT(**small).fit(data), hushrec.DRIFT(**small).fit(owned(data, "2", 0))
    in_one_place = hushrec.SAROS(**small).fit(owned(data, "2", 0))
    num_owners = [len(owners_of(model.ranker().train).names) for model in (dealt, by_two, in_one_place)]
    assert num_owners == [5, 2, 1]
    assert len({factors(model) for model in (dealt, by_two, in_one_place)}) == 3


def test_fit_again_begins_anew(split: Any) -> None:
    model = hushrec.FedRec(options=ONE_THREAD, **SHORT)
    once, twice = factors(model.fit(split.train)), factors(model.fit(split.train))
    assert once == twice
    assert once != factors(hushrec.FedRec(seed=1, options=ONE_THREAD, **SHORT).fit(split.train))


def test_learning_beats_a_model_that_has_hardly_begun(split: Any) -> None:
    """A constant within the range has an error of the ratings' spread at least; 40 rounds must do better."""
    constant = np.abs(split.test.ratings - np.median(split.train.ratings)).mean()
    trained = hushrec.FedRec(preset="paper", rho=0, num_rounds=40, num_factors=5, options=ONE_THREAD).fit(
        split.train
    )
    begun = hushrec.FedRec(preset="paper", rho=0, num_rounds=1, num_factors=5, options=ONE_THREAD).fit(split.train)
    assert trained.evaluate(split.test)["MAE"] < constant < begun.evaluate(split.test)["MAE"]


def test_unknown_settings_are_refused_with_a_hint() -> None:
    with pytest.raises(hushrec.HushrecError, match=r"unknown setting num_round; did you mean num_rounds\?"):
        hushrec.FedRec(num_round=3)
    with pytest.raises(hushrec.HushrecError, match="unknown setting denoisers; known: rho, filling"):
        hushrec.FedRec(denoisers=3)
    with pytest.raises(hushrec.HushrecError, match="bad setting"):
        hushrec.FedRec(rho="three")
    with pytest.raises(hushrec.HushrecError, match="rho=-1 is not within 0 to"):
        hushrec.FedRec(rho=-1)


@pytest.mark.parametrize(
    "use",
    [
        lambda model, data: model.predict(1, 1),
        lambda model, data: model.recommend(1),
        lambda model, data: model.recommend_newcomer([1], [5]),
        lambda model, data: model.evaluate(data),
        lambda model, data: model.save("nowhere"),
    ],
    ids=["predict", "recommend", "newcomer", "evaluate", "save"],
)
def test_what_is_not_fitted_says_so(use: Any, data: Interactions) -> None:
    with pytest.raises(hushrec.HushrecError, match=r"FedRec is not fitted; call fit\(train\) first"):
        use(hushrec.FedRec(), data)
    assert not Path("nowhere").exists()


def test_a_fit_that_fails_leaves_the_model_as_it_was(split: Any) -> None:
    model = hushrec.FedRec(options=ONE_THREAD, **SHORT)
    with pytest.raises(hushrec.HushrecError):
        model.fit(split.train.select(np.zeros(len(split.train), bool)))
    with pytest.raises(hushrec.HushrecError, match="is not fitted"):
        model.predict(1, 1)


# --- Predict -----------------------------------------------------------------------------------------------


def test_predictions_are_by_the_ids_of_the_source(model: Recommender, split: Any) -> None:
    """Synthetic ids are the numbers plus 1. Prediction: U_u V_i within 1..5."""
    job, progress = model._require_fitted()
    scorer: Any = job.scorer(progress)
    users, items = split.test.users[:50], split.test.items[:50]
    expected = np.clip((scorer.user_factors[users] * scorer.item_factors[items]).sum(axis=1), 1, 5)
    found = model.predict(users + 1, items + 1)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_array_equal(model.predict([str(user + 1) for user in users], items + 1), found)


def test_one_user_and_many_items(model: Recommender) -> None:
    many = model.predict(3, [1, 2, 3])
    np.testing.assert_array_equal(many, model.predict([3, 3, 3], [1, 2, 3]))
    np.testing.assert_array_equal(model.predict([1, 2], 7), model.predict([1, 2], [7, 7]))
    assert model.predict(3, 2).tolist() == [many[1]]


def test_users_and_items_broadcast_to_a_table(model: Recommender) -> None:
    table = model.predict(np.array([[1], [2]]), np.array([1, 2, 3]))
    np.testing.assert_array_equal(table, [model.predict(1, [1, 2, 3]), model.predict(2, [1, 2, 3])])


def test_predictions_stay_within_the_range(split: Any) -> None:
    """After one round vectors are tiny and every product is far below the lowest rating."""
    begun = hushrec.FedRec(preset="paper", num_rounds=1, num_factors=5, options=ONE_THREAD).fit(split.train)
    assert set(begun.predict(np.arange(1, 51), np.arange(1, 51)).tolist()) == {1.0}
    free = replace(split.train, rating_range=None)
    unclipped = hushrec.FedRec(preset="paper", num_rounds=1, num_factors=5, options=ONE_THREAD).fit(free)
    assert unclipped.predict(np.arange(1, 51), np.arange(1, 51)).max() < 1.0


@pytest.mark.parametrize(
    ("user", "item", "told"), [(0, 1, "no user '0'"), (81, 1, "no user '81'"), (1, "x", "no item 'x'")]
)
def test_unknown_ids_are_refused(model: Recommender, user: Any, item: Any, told: str) -> None:
    with pytest.raises(
        hushrec.HushrecError,
        match=rf"{told} in synthetic; (item ids look like 1 \.\.\. \d+|its 80 user ids are numbers)",
    ):
        model.predict([1, user], [1, item])


def test_an_id_that_is_no_whole_number_is_refused(model: Recommender) -> None:
    with pytest.raises(hushrec.HushrecError, match=r"no user '1\.5'"):
        model.predict(1.5, 1)


# --- Recommend ---------------------------------------------------------------------------------------------


def test_lists_are_ranked_and_leave_out_what_was_rated(model: Recommender, split: Any) -> None:
    lists = model.recommend([1, 2, 80], k=5, min_raters=0)
    assert [len(one) for one in lists] == [5, 5, 5]
    job, progress = model._require_fitted()
    for user, found in zip((1, 2, 80), lists, strict=True):
        assert all(isinstance(entry, Recommendation) for entry in found)
        scores = job.scorer(progress).score(np.array([user - 1], np.int32))[0]
        rated = split.train.items[split.train.users == user - 1]
        candidates = np.setdiff1d(np.arange(50), rated)
        best = candidates[np.argsort(-scores[candidates], kind="stable")][:5]
        assert [entry.item for entry in found] == (best + 1).tolist()
        shown = np.clip(scores[best], *split.train.rating_range)  # the order is the model's
        np.testing.assert_allclose([entry.score for entry in found], shown, rtol=1e-6)
        assert {type(entry.item) for entry in found} == {int}
    (alone,) = model.recommend(80, k=5, min_raters=0)
    assert [entry.item for entry in alone] == [entry.item for entry in lists[2]]


def test_rated_items_can_be_included(model: Recommender, split: Any) -> None:
    everything = model.recommend(1, k=50, exclude_seen=False, min_raters=0)[0]
    assert sorted(entry.item for entry in everything) == list(range(1, 51))
    scores = [entry.score for entry in everything]
    assert scores == sorted(scores, reverse=True)


def test_k_larger_than_the_candidates_gives_them_all(model: Recommender, split: Any) -> None:
    rated = set((split.train.items[split.train.users == 4] + 1).tolist())
    found = model.recommend(5, k=1000, min_raters=0)[0]
    assert {entry.item for entry in found} == set(range(1, 51)) - rated


def test_hardly_rated_items_are_left_out() -> None:
    data = hushrec.load("synthetic:users=80,items=50,ratings=800")
    model = hushrec.FedRec(options=ONE_THREAD, **SHORT).fit(data)
    raters = np.bincount(data.items, minlength=50)
    limit = int(np.median(raters))
    assert raters.min() < 10 < limit, "the default leaves something out"
    for options in ({"min_raters": 0}, {"min_raters": 10}, {}, {"min_raters": limit}):
        expected = np.flatnonzero(raters >= options.get("min_raters", 10)) + 1
        found = model.recommend(1, k=50, exclude_seen=False, **options)[0]
        assert sorted(entry.item for entry in found) == expected.tolist()
        folded = model.recommend_newcomer([1, 2], [5, 1], k=50, exclude_seen=False, **options)
        assert sorted(entry.item for entry in folded) == expected.tolist()


def test_a_list_longer_than_the_catalogue_is_the_catalogue_at_once(data: Interactions) -> None:
    """A place for each of so many items would not fit into memory."""
    model = hushrec.FedRec(**SHORT, options=ONE_THREAD).fit(data)
    (found,) = model.recommend(1, k=10**15, exclude_seen=False, min_raters=0)
    assert sorted(entry.item for entry in found) == sorted(data.item_ids.tolist())
    assert found == model.recommend(1, k=data.num_items, exclude_seen=False, min_raters=0)[0]


def test_impossible_lists_are_refused(model: Recommender) -> None:
    with pytest.raises(hushrec.HushrecError, match="no item has 81 raters; use fewer"):
        model.recommend(1, min_raters=81)
    with pytest.raises(hushrec.HushrecError, match="a list of 0 items is too short; ask for at least 1"):
        model.recommend(1, k=0)
    with pytest.raises(hushrec.HushrecError, match="no user 'nobody' in synthetic"):
        model.recommend("nobody")


# --- Newcomers ---------------------------------------------------------------------------------------------


# The mean is the same for all; newcomers of partners are tested in models/test_partner_model.py.
@pytest.mark.parametrize("kind", [kind for kind in EXPLICIT if kind not in (hushrec.Average, hushrec.FedCORE)])
def test_a_newcomer_with_a_users_ratings_gets_similar_scores(kind: type[Recommender], split: Any) -> None:
    """A newcomer makes the user's own steps with the final V: nearer to the user's scores than to anyone's."""
    is_summed = "sdcf" in kind.system.name  # its steps add up over a user's ratings
    settings = (
        {"num_rounds": 60, "learning_rate": 0.02}
        if is_summed
        else {"num_rounds": 400, "learning_rate": 0.3, "decay": 1.0}
    )
    preset = {"preset": "paper"} if kind.system.about.presets else {}
    model = kind(options=ONE_THREAD, num_factors=5, **preset, **settings).fit(split.train)
    every = {"k": 50, "exclude_seen": False, "min_raters": 0}
    scores = np.array([by_item(found) for found in model.recommend(np.arange(1, 81), **every)])
    own, others = [], []
    for user in range(20):
        is_own = split.train.users == user
        items, ratings = split.train.items[is_own] + 1, split.train.ratings[is_own]
        folded = by_item(model.recommend_newcomer(items, ratings, **every))
        likeness = np.corrcoef(np.vstack([folded, scores]))[0, 1:]
        own.append(likeness[user])
        others.append(np.median(np.delete(likeness, user)))
    assert np.median(own) > 0.8
    assert np.median(own) > np.median(others) + 0.3


def by_item(found: list[Recommendation]) -> list[float]:
    return [entry.score for entry in sorted(found, key=lambda entry: entry.item)]


def test_a_model_that_scores_all_items_alike_lists_none_for_a_newcomer(split: Any) -> None:
    model = hushrec.Average(options=ONE_THREAD).fit(split.train)
    with pytest.raises(hushrec.HushrecError, match=r"\Athis model scores all items alike .*; rate other items\Z"):
        model.recommend_newcomer([1, 2, 3], [1, 1, 1])


@pytest.mark.parametrize("kind", [hushrec.FCF, hushrec.FedMF])
def test_a_newcomers_ratings_do_not_matter_where_feedback_is_implicit(kind: type[Recommender], split: Any) -> None:
    model = kind(options=ONE_THREAD, **brief(kind)).fit(split.train)
    found = model.recommend_newcomer([1, 2, 3], [5, 1, 4], k=50, min_raters=0)
    assert found == model.recommend_newcomer([1, 2, 3], [1, 1, 1], k=50, min_raters=0)
    assert found != model.recommend_newcomer([7, 8, 9], [1, 1, 1], k=50, min_raters=0)


@pytest.mark.parametrize("kind", SIGNED)
def test_a_newcomer_of_signed_feedback_says_what_it_liked(kind: type[Recommender], split: Any) -> None:
    model = kind(options=ONE_THREAD, **brief(kind), learning_rate=0.5).fit(split.train)
    liked, disliked = (
        by_item(model.recommend_newcomer([1, 2], ratings, k=50, exclude_seen=False, min_raters=0))
        for ratings in ([5, 2], [1, 3])
    )
    assert liked[0] > liked[1]
    assert disliked[0] < disliked[1]
    every = {"k": 50, "exclude_seen": False, "min_raters": 0}
    assert model.recommend_newcomer([1, 2], **every) == model.recommend_newcomer([1, 2], [4, 5], **every)
    with pytest.raises(hushrec.HushrecError, match=r"\Aa rating is outside of 1 to 5, the scale of this model"):
        model.recommend_newcomer([1, 2], [1, 0])
    with pytest.raises(hushrec.HushrecError, match=r"\Athis model scores all items alike"):
        model.recommend_newcomer([1, 2], [1, 2])


def test_where_ratings_were_good_or_bad_already_newcomers_say_so_too(split: Any) -> None:
    liked = replace(split.train.as_signed(), signed_from=None)  # as read from a file of zeros and ones
    model = hushrec.SAROS(options=ONE_THREAD, **brief(hushrec.SAROS)).fit(liked)
    assert model.recommend_newcomer([1, 2], [1, 0])
    with pytest.raises(hushrec.HushrecError, match=r"\Aa rating is outside of 0 to 1"):
        model.recommend_newcomer([1, 2], [5, 1])


def test_a_newcomer_changes_nothing(model: Recommender) -> None:
    before, sent = factors(model), dict(model._require_fitted()[1].transcript.tallies)
    first = model.recommend_newcomer([1, 2, 3], [5, 1, 4])
    assert model.recommend_newcomer([1, 2, 3], [5, 1, 4]) == first
    assert factors(model) == before
    assert model._require_fitted()[1].transcript.tallies == sent


def test_a_newcomer_is_not_told_what_it_rated(model: Recommender) -> None:
    rated = [40, 2, 17]
    found = model.recommend_newcomer(rated, [5, 1, 4], k=50, min_raters=0)
    assert {entry.item for entry in found} == set(range(1, 51)) - set(rated)
    both = model.recommend_newcomer(rated, [5, 1, 4], k=50, exclude_seen=False, min_raters=0)
    assert len(both) == 50


def test_a_newcomers_taste_matters(split: Any) -> None:
    model = hushrec.FedRec(rho=0, num_rounds=40, num_factors=5, options=ONE_THREAD).fit(split.train)
    items = list(range(1, 21))
    one = model.recommend_newcomer(items, [5.0] * 10 + [1.0] * 10, k=5)
    other = model.recommend_newcomer(items, [1.0] * 10 + [5.0] * 10, k=5)
    assert one != other


def test_a_newcomers_lists_must_match(model: Recommender) -> None:
    with pytest.raises(hushrec.HushrecError, match="3 items and 2 ratings; give one rating per item"):
        model.recommend_newcomer([1, 2, 3], [5, 4])
    with pytest.raises(
        hushrec.HushrecError, match=r"2 of 3 items are not in synthetic; leave them out \(item ids"
    ):
        model.recommend_newcomer([999, 1, "x"], [5, 5, 5])
    with pytest.raises(hushrec.HushrecError, match="an item is listed twice; give each item once"):
        model.recommend_newcomer([3, 1, 3], [5, 5, 5])
    with pytest.raises(hushrec.HushrecError, match="a newcomer without ratings cannot be told anything"):
        model.recommend_newcomer([], [])
    with pytest.raises(hushrec.HushrecError, match="this model learns from ratings; give one per item"):
        model.recommend_newcomer([1, 2])


@pytest.mark.parametrize("rating", [0.0, 5.01, -1e30, float("inf"), float("nan")])
def test_ratings_off_the_scale_are_refused(model: Recommender, rating: float) -> None:
    with pytest.raises(
        hushrec.HushrecError, match=r"\Aa rating is outside of 1 to 5, the scale of this model; give"
    ):
        model.recommend_newcomer([1, 2], [5, rating])


@dataclass(frozen=True)
class Folded:
    """Says the same to every newcomer."""

    scores: np.ndarray

    def fold_in(self, _items: np.ndarray, _ratings: np.ndarray) -> np.ndarray:
        return self.scores


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({7: np.nan}, "scores that are not finite"),
        ({7: np.inf}, "scores that are not finite"),
        ({1: -445.98}, "scores far outside of 1 to 5"),  # of what was rated
        ({7: 9.1}, "scores far outside of 1 to 5"),  # of what would be shown first
        (dict.fromkeys((0, *range(3, 50)), -3519), "scores far outside of 1 to 5"),
        ({}, "scores all items alike"),
    ],
)
def test_scores_that_are_not_plausible_are_no_list(model: Recommender, change: Any, told: str) -> None:
    scores = np.full(50, 3.0, np.float32)
    for item, score in change.items():
        scores[item] = score
    ranker = replace(model.ranker(), scorer=Folded(scores))
    with pytest.raises(hushrec.HushrecError, match=told):
        ranker.for_newcomer(np.array([1, 2], np.int32), np.ones(2, np.float32), 10, min_raters=0)


def test_scores_of_ratings_are_shown_within_their_scale(model: Recommender) -> None:
    scores = np.linspace(-2, 6, 50, dtype=np.float32)
    ranker = replace(model.ranker(), scorer=Folded(scores))
    rated, given = np.array([30, 31], np.int32), np.ones(2, np.float32)
    found = ranker.for_newcomer(rated, given, 50, min_raters=0)
    assert [entry.item for entry in found] == [item + 1 for item in range(49, -1, -1) if item not in (30, 31)]
    assert (found[0].score, found[-1].score) == (5.0, 1.0)
    free = replace(ranker, scale=None).for_newcomer(rated, given, 50, min_raters=0)
    assert (free[0].score, free[-1].score) == (6.0, -2.0)


# --- Original ids ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, data: Interactions) -> Interactions:
    path = tmp_path_factory.mktemp("shop") / "shop.csv"
    assert data.ratings is not None
    lines = [
        f"user-{user:02},Ünit {item:02},{rating}"
        for user, item, rating in zip(data.users, data.items, data.ratings, strict=True)
    ]
    path.write_text("\n".join(["user,item,rating", *lines]), encoding="utf-8")
    return hushrec.read(path)


def test_string_ids_go_in_and_come_out(shop: Interactions, data: Interactions) -> None:
    by_name = hushrec.FedRec(options=ONE_THREAD, **SHORT).fit(shop)
    by_number = hushrec.FedRec(options=ONE_THREAD, **SHORT).fit(data)
    users, items = ["user-00", "user-79"], ["Ünit 49", "Ünit 03"]
    np.testing.assert_array_equal(by_name.predict(users, items), by_number.predict([1, 80], [50, 4]))
    names = [entry.item for entry in by_name.recommend("user-07", k=5)[0]]
    assert names == [f"Ünit {entry.item - 1:02}" for entry in by_number.recommend(8, k=5)[0]]
    with pytest.raises(hushrec.HushrecError, match=r"no user 'user-99' in shop\.csv; its \d+ user ids are texts$"):
        by_name.recommend("user-99")
    with pytest.raises(hushrec.HushrecError, match="no user 'user-000'"):
        by_name.predict("user-000", items)


def test_titles_come_with_the_items(data: Interactions) -> None:
    titled = replace(data, titles=np.array([f"Title {item} (1999)" for item in data.item_ids]))
    found = hushrec.FedRec(options=ONE_THREAD, **SHORT).fit(titled).recommend(1, k=3)[0]
    assert [entry.title for entry in found] == [f"Title {entry.item} (1999)" for entry in found]
    untitled = hushrec.FedRec(options=ONE_THREAD, **SHORT).fit(data).recommend(1, k=3)[0]
    assert [entry.title for entry in untitled] == ["", "", ""]


def test_a_test_file_with_a_numbering_of_its_own_is_understood_or_refused(tmp_path: Path) -> None:
    """The test file has no row of C, so that D is number 2 there; in training 2 is C."""
    (tmp_path / "train.csv").write_text("user,item,rating\na,A,5\nb,B,5\nc,C,5\nc,D,1\n")
    (tmp_path / "test.csv").write_text("user,item,rating\na,D,1\na,B,5\nb,D,1\nc,A,5\n")
    train, test = (hushrec.load(tmp_path / f"{name}.csv", rating_range=(1, 5)) for name in ("train", "test"))
    model = hushrec.FedRec(
        rho=0, num_rounds=60, num_factors=5, learning_rate=0.3, decay=1.0, options=ONE_THREAD
    ).fit(train)
    predicted = model.predict(test.user_ids[test.users], test.item_ids[test.items])
    try:
        found = model.evaluate(test)
    except hushrec.HushrecError:
        return
    assert found["MAE"] == pytest.approx(np.abs(predicted - test.ratings).mean())


def test_a_second_fit_replaces_the_first(split: Any) -> None:
    again = hushrec.FedRec(options=ONE_THREAD, **SHORT).fit(split.train)
    first = again.recommend(1, min_raters=0)
    other = split.train.select(np.arange(0, len(split.train), 2))
    assert again.fit(other).recommend(1, min_raters=0) != first
    assert again.ranker().train is other


# --- Keeping -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_model_is_the_same(kind: type[Recommender], shop: Interactions, tmp_path: Path) -> None:
    model = kind(seed=4, options=ONE_THREAD, **brief(kind)).fit(held(kind.system.name, shop))
    model.save(str(tmp_path / "model"))
    kept = hushrec.load_run(str(tmp_path / "model"))
    assert type(kept) is kind
    assert (kept.config, kept.seed) == (model.config, 4)
    prefix = "a:" if kind.system.holders is PARTNERS else ""
    items = [one for one in model._require_fitted()[0].train.item_ids.tolist() if one.startswith(prefix)]
    users = [f"{prefix}user-00", f"{prefix}user-41"]
    assert kept.recommend(users) == model.recommend(users)
    np.testing.assert_array_equal(kept.predict(users, items[7]), model.predict(users, items[7]))
    assert factors(kept) == factors(model)
    if kind is not hushrec.Average:
        newcomer = items[1:3], [5, 1]
        assert kept.recommend_newcomer(*newcomer) == model.recommend_newcomer(*newcomer)
    (fold,) = read_run(tmp_path / "model").folds
    assert (fold.metrics, fold.num_train, fold.num_test) == ({}, len(held(kind.system.name, shop)), 0)


# --- Whose model -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_sided(tmp_path_factory: pytest.TempPathFactory, split: Any) -> Path:
    """A kept PTF-FedRec, where server and clients have models of their own."""
    folder = tmp_path_factory.mktemp("kept") / "ptf"
    hushrec.PTFFedRec(options=ONE_THREAD, **brief(hushrec.PTFFedRec)).fit(split.train).save(folder)
    return folder


def test_both_sides_recommend_and_say_whose_model_it_is(two_sided: Path) -> None:
    server, client, default = (hushrec.load_run(two_sided, side=side) for side in ("server", "client", None))
    assert (server.source, default.source) == ("the server's model", "the server's model")
    assert client.source == "the client's own model; nothing was sent"
    assert server.recommend(1) == default.recommend(1) != client.recommend(1)
    job, progress = client._require_fitted()
    own = job.system.result.party(progress.private, job.config, None)
    np.testing.assert_array_equal(client.predict(3, [1, 2, 3]), own.score(np.array([2], np.int32))[0, :3])


@pytest.mark.parametrize("kind", KINDS)
def test_a_side_without_a_model_is_refused_in_one_line(
    kind: type[Recommender], split: Any, tmp_path: Path
) -> None:
    train = held(kind.system.name, split.train)
    kind(options=ONE_THREAD, **short(kind.system.name, num_rounds=1)).fit(train).save(tmp_path / "model")
    result = kind.system.result
    for side, has_model in (("server", result.server is not None), ("client", result.party is not None)):
        if has_model:
            who = "partner" if kind.system.holders is PARTNERS else side
            assert hushrec.load_run(tmp_path / "model", side=side).source.startswith(f"the {who}'s")
        else:
            with pytest.raises(
                hushrec.HushrecError, match=rf"\A.* of {kind.system.name.replace('+', '.')} .*side='{side}'.*\Z"
            ):
                hushrec.load_run(tmp_path / "model", side=side)


def test_an_item_of_several_partners_is_listed_once_and_not_to_who_has_it(data: Interactions) -> None:
    """Whether a newcomer names items as the source does, or as one of three partners does."""
    train = next(copies(data, Deal(num_partners=3), 0)).train
    model = hushrec.FedCORE(options=ONE_THREAD, **short("fedcore", num_rounds=2)).fit(train)
    names = [item.partition(":")[2] for item in train.item_ids.tolist()]
    shared = [name for name in dict.fromkeys(names) if names.count(name) == 3]
    at_two = {item.partition(":")[2] for item in train.item_ids.tolist() if not item.startswith("c:")}
    for items, of_partners in (([f"a:{shared[0]}", f"b:{shared[1]}"], at_two), (shared[:2], set(names))):
        found = model.recommend_newcomer(items, [5, 1], k=len(train.item_ids), min_raters=0)
        listed = [str(entry.item).partition(":")[2] for entry in found]
        assert sorted(listed) == sorted(of_partners - set(shared[:2]))
        assert len(model.recommend_newcomer(items, [5, 1], k=5, min_raters=0)) == 5
    alike = [str(entry.item).partition(":")[2] for entry in model.similar(shared[0], k=500, min_raters=0)]
    assert len(alike) == len(set(alike))
    assert shared[0] not in alike


def test_a_fold_of_a_run_is_loaded(data: Interactions, tmp_path: Path) -> None:
    config = hushrec.FedRec(**SHORT).config
    done = run(SYSTEMS["fedrec"], config, data, RunSettings(num_folds=2), ONE_THREAD, tmp_path / "run")
    for split, result in zip(hushrec.k_folds(data), done.folds, strict=False):
        assert hushrec.load_run(tmp_path / "run", result.fold).evaluate(split.test) == result.metrics
    first = hushrec.load_run(tmp_path / "run")
    assert factors(first) == factors(hushrec.load_run(tmp_path / "run", 1))
    assert factors(first) != factors(hushrec.load_run(tmp_path / "run", 2))


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(hushrec.HushrecError, match="is not a run; make one with"):
        hushrec.load_run(tmp_path)


def test_a_server_without_ratings_has_no_number_of_raters() -> None:
    """Deployed, it knows items and users by number only; all items may be recommended."""
    data = hushrec.load("synthetic:users=20,items=15,ratings=100")
    fitted = hushrec.PTFFedRec(num_rounds=1).fit(data)
    known = replace(
        fitted.ranker(), train=data.select(np.zeros(len(data), bool)), num_raters=np.zeros(15, np.int64)
    )
    assert len(known.for_users(np.array([0], np.int32), 5, False)[0]) == 5
    with pytest.raises(HushrecError, match="no item has 21 raters"):
        fitted.ranker().for_users(np.array([0], np.int32), 5, min_raters=21)

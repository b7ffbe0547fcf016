"""Lists of all users, of chosen items, with reasons; similar items; and the files that lists are written to."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest

import hushrec
from hushrec.data import Deal, Interactions, copies
from hushrec.data.holdings import PARTNERS
from hushrec.errors import HushrecError
from hushrec.estimators import ESTIMATORS
from hushrec.evaluation.scoring import item_vectors_of
from hushrec.recommender import Recommender
from hushrec.runs import ranker
from hushrec.runs.lists import Reason, Recommendation, check_lists_file, write_lists
from systems.runs import short

KINDS = list(ESTIMATORS.values())
ONE_THREAD = hushrec.RuntimeOptions(threads=1)
# A client of MetaMF has vectors made for it alone; the mean of all ratings has none.
WITHOUT_VECTORS = {"metamf", "average"}


@pytest.fixture(scope="module")
def data() -> Interactions:
    return hushrec.load("synthetic:users=80,items=50,ratings=1500")


@pytest.fixture(scope="module")
def fitted(data: Interactions) -> dict[str, Recommender]:
    """Every system, trained for a moment."""
    found = {}
    for kind in KINDS:
        train = next(copies(data, Deal(), 0)).train if kind.system.holders is PARTNERS else data
        model = kind(options=ONE_THREAD, **short(kind.system.name, num_rounds=2))
        found[kind.system.name] = model.fit(train)
    return found


@pytest.fixture(scope="module")
def model(data: Interactions) -> Recommender:
    """Trained well enough for newcomers."""
    return hushrec.FedRec(num_rounds=40, num_factors=5, options=ONE_THREAD).fit(data)


NAMES = [kind.system.name for kind in KINDS]


# --- All users ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_lists_of_all_users_are_those_of_each(
    fitted: dict[str, Recommender], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the blocks: here 7 users at a time. The last bit of a product may depend on its shape (BLAS)."""
    model = fitted[name]
    monkeypatch.setattr(ranker, "_BLOCK_SCORES", 7 * model.ranker().train.num_items)
    blocks = list(model.recommend_all(5, min_raters=0))
    users = model.ranker().train.user_ids.tolist()
    assert len(blocks) == -(-len(users) // 7)
    rows = [row for block in blocks for row in block.to_pylist()]
    expected = [
        {"user": user, "rank": rank, "item": entry.item, "score": entry.score, "title": entry.title}
        for user in users
        for rank, entry in enumerate(model.recommend(user, 5, min_raters=0)[0], 1)
    ]
    scores, others = ([row.pop("score") for row in found] for found in (rows, expected))
    assert rows == expected
    np.testing.assert_allclose(scores, others, rtol=1e-6)


def test_options_reach_the_lists_of_all(model: Recommender) -> None:
    options = {"k": 3, "exclude_seen": False, "min_raters": 30, "leave_out": [7], "why": True}
    rows = pa.Table.from_batches(model.recommend_all(**options)).to_pylist()
    lists = model.recommend(range(1, 81), **options)
    reasons = [entry.because for found in lists for entry in found]
    assert [row["item"] for row in rows] == [entry.item for found in lists for entry in found]
    assert [row["because"] for row in rows] == [reason and reason.item for reason in reasons]
    assert [row["because_title"] for row in rows] == [reason and reason.title for reason in reasons]
    assert None not in {row["because"] for row in rows[:10]}


def test_users_for_whom_nothing_is_left_have_no_row(model: Recommender) -> None:
    rows = pa.Table.from_batches(model.recommend_all(5, min_raters=0, only=[3])).to_pylist()
    train = model.ranker().train
    seen = set(train.user_ids[train.users[train.items == train.item_number(3)]].tolist())
    assert {row["user"] for row in rows} == set(range(1, 81)) - seen
    assert seen


# --- Length ------------------------------------------------------------------------------------------------


def test_a_list_longer_than_the_catalogue_is_the_catalogue(model: Recommender) -> None:
    """At once: a table of 80 times 10**9 places would not fit anywhere."""
    for found in model.recommend(range(1, 81), 10**9, exclude_seen=False, min_raters=0):
        assert sorted(entry.item for entry in found) == list(range(1, 51))
    assert len(model.recommend_newcomer([1, 2], [5, 3], 10**9, min_raters=0)) == 48


# --- Chosen items ------------------------------------------------------------------------------------------


def test_only_and_leave_out(model: Recommender) -> None:
    everything = [entry.item for entry in model.recommend(7, 50, min_raters=0)[0]]
    chosen, left_out = everything[::3], everything[3::6]
    found = [entry.item for entry in model.recommend(7, 50, min_raters=0, only=chosen, leave_out=left_out)[0]]
    assert found == [item for item in chosen if item not in left_out]
    found = [entry.item for entry in model.recommend(7, 50, min_raters=0, leave_out=left_out)[0]]
    assert found == [item for item in everything if item not in left_out]
    newcomer = [entry.item for entry in model.recommend_newcomer([50], [5], min_raters=0, only=[3, 1, 50])]
    assert sorted(newcomer) == [1, 3], "what was rated is not listed, chosen or not"


def test_the_rule_of_raters_holds_for_chosen_items(model: Recommender) -> None:
    num_raters = model.ranker().num_raters
    rare = int(num_raters.argmin()) + 1
    least = int(num_raters.min()) + 1
    with pytest.raises(HushrecError, match=f"no chosen item has {least} raters; choose others, or use fewer"):
        model.recommend(7, min_raters=least, only=[rare])
    with pytest.raises(HushrecError, match="no item 'x' in synthetic"):
        model.recommend(7, only=["x"])
    with pytest.raises(HushrecError, match="what was chosen leaves no item to list; choose more, or leave out"):
        model.recommend(7, min_raters=0, leave_out=range(1, 51))
    with pytest.raises(HushrecError, match="-1 raters are fewer than none; use min_raters=0"):
        model.recommend(7, min_raters=-1)


@pytest.mark.parametrize("name", ["fedncf", "neumf", "ngcf", "lightgcn", "ptf-fedrec", "metamf"])
def test_networks_show_probabilities(fitted: dict[str, Recommender], name: str) -> None:
    """Also where a model ranks by logits, and to newcomers; what `predict` says is what lists show."""
    model = fitted[name]
    for user in (1, 2):
        found = model.recommend(user, 50, min_raters=0)[0]
        scores = np.array([entry.score for entry in found])
        assert ((scores > 0) & (scores < 1)).all()
        assert (np.diff(scores) <= 0).all()
        items = [entry.item for entry in found]
        np.testing.assert_allclose(model.predict([user] * len(items), items), scores, rtol=1e-5)
    newcomer = np.array([entry.score for entry in model.recommend_newcomer([3, 4], k=50, min_raters=0)])
    assert ((newcomer > 0) & (newcomer < 1)).all()


def test_lists_are_ranked_by_logits_where_probabilities_are_all_one(fitted: dict[str, Recommender]) -> None:
    """Logits of 30 and more are 1 in single precision; the better item still comes first."""
    fit = fitted["fedncf"].ranker()
    layers = fit.scorer.layers.copy()
    layers[-1] += 40
    network = replace(fit.scorer, layers=layers)
    users = np.arange(5, dtype=np.int32)
    found = replace(fit, scorer=network).lists(users, 8, False, 0, None, False)
    assert (found.scores == 1).all()
    np.testing.assert_array_equal(found.items, np.argsort(-network.score(users), axis=1, kind="stable")[:, :8])


# --- Similar items -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_similar_items_have_the_nearest_vectors(fitted: dict[str, Recommender], name: str) -> None:
    """Against cosines in double precision, one pair after the other."""
    model, fit = fitted[name], fitted[name].ranker()
    vectors = item_vectors_of(fit.scorer)
    assert (vectors is None) == (name in WITHOUT_VECTORS) == (not fit.explains)
    item = int(fit.num_raters.argmax())
    item_id = fit.train.item_ids[item].item()
    if vectors is None:
        with pytest.raises(HushrecError, match="no vectors of items that could be compared"):
            model.similar(item_id)
        with pytest.raises(HushrecError, match="no vectors of items that could be compared"):
            model.recommend(fit.train.user_ids[0], min_raters=0, why=True)
        return
    centred = vectors.astype(np.float64) - vectors[fit.num_raters > 0].mean(axis=0, dtype=np.float64)
    lengths = np.linalg.norm(centred, axis=1)
    cosines = centred @ centred[item] / np.maximum(lengths * lengths[item], 1e-30)
    found = model.similar(item_id, 5, min_raters=0)
    places = [fit.train.item_number(entry.item) for entry in found]
    assert item not in places
    np.testing.assert_allclose([entry.score for entry in found], cosines[places], atol=1e-5)
    others = np.delete(cosines, item)
    np.testing.assert_allclose(cosines[places], np.sort(others)[::-1][:5], atol=1e-5)


def test_similar_items_obey_the_rule_of_raters_and_choices(model: Recommender) -> None:
    fit = model.ranker()
    many = int(np.sort(fit.num_raters)[-10])
    found = model.similar(1, 50, min_raters=many)
    assert {entry.item for entry in found} == set((np.flatnonzero(fit.num_raters >= many) + 1).tolist()) - {1}
    assert [entry.item for entry in model.similar(1, min_raters=0, only=[1, 2, 3], leave_out=[3])] == [2]
    assert len(model.similar(1, 10**9, min_raters=0)) == 49
    with pytest.raises(HushrecError, match="a list of 0 items is too short"):
        model.similar(1, 0)
    with pytest.raises(HushrecError, match="no item '99'"):
        model.similar(99)


def test_an_item_that_nobody_rated_is_like_none(data: Interactions) -> None:
    model = hushrec.FedRec(num_rounds=1, num_factors=3, options=ONE_THREAD).fit(data.select(data.items != 4))
    with pytest.raises(HushrecError, match="nobody rated item 5 in training: nothing is like it"):
        model.similar(5, min_raters=0)


def test_an_item_that_nothing_was_learned_about_is_like_none(data: Interactions) -> None:
    """Where all ratings are the same they say nothing of an item, though people rated it."""
    same = replace(data, ratings=np.full_like(data.ratings, 4), rating_range=(4, 4))
    model = hushrec.FedRec(num_rounds=2, num_factors=3, preset="general", options=ONE_THREAD).fit(same)
    with pytest.raises(HushrecError, match="the model learned nothing about item 5: nothing is like it"):
        model.similar(5, min_raters=0)


def test_partners_items_are_compared_with_their_own_only(fitted: dict[str, Recommender]) -> None:
    model = fitted["fedcore"]
    ids = model.ranker().train.item_ids
    first = str(ids[0])
    partner = first.partition(":")[0]
    own = [item for item in ids.tolist() if item.startswith(f"{partner}:")]
    found = model.similar(first, len(own) // 3, min_raters=0)
    assert all(entry.item.startswith(f"{partner}:") for entry in found if entry.score > 0.05)
    assert any(entry.score > 0.05 for entry in found)


# --- Why ---------------------------------------------------------------------------------------------------


def test_reasons_are_own_items_and_lists_stay_the_same(model: Recommender) -> None:
    train = model.ranker().train
    for user in (1, 40, 80):
        plain, found = model.recommend(user, 8)[0], model.recommend(user, 8, why=True)[0]
        assert [(entry.item, entry.score) for entry in found] == [(entry.item, entry.score) for entry in plain]
        assert {entry.because for entry in plain} == {None}
        own = set(train.item_ids[train.items[train.users == user - 1]].tolist())
        reasons = [entry.because for entry in found if entry.because is not None]
        assert reasons
        assert {reason.item for reason in reasons} <= own
        for entry in found:
            if entry.because is not None:
                (alike,) = model.similar(entry.item, 1, min_raters=0, only=[entry.because.item])
                assert alike.score == pytest.approx(entry.because.similarity, abs=1e-5)


def test_what_is_rated_lowest_is_never_the_reason(model: Recommender) -> None:
    (nearest,) = model.similar(1, 1, min_raters=0)
    (listed,) = model.recommend_newcomer([nearest.item], [5], only=[1], min_raters=0, why=True)
    assert listed.because == Reason(nearest.item, "", pytest.approx(nearest.score, abs=1e-6))
    (listed,) = model.recommend_newcomer([nearest.item], [1], only=[1], min_raters=0, why=True)
    assert listed.because is None


def test_an_entry_tells_why_only_if_asked() -> None:
    entry = Recommendation(3, 4.5, "Three", Reason(7, "Seven", 0.5))
    assert entry.told() == {"item": 3, "score": 4.5, "title": "Three"}
    assert entry.told(True)["because"] == {"item": 7, "title": "Seven", "similarity": 0.5}
    assert Recommendation(3, 4.5, "Three").told(True)["because"] is None


# --- Files -------------------------------------------------------------------------------------------------


def read_back(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    table = pa_csv.read_csv(path) if path.suffix == ".csv" else pa_parquet.read_table(path)
    found: list[dict[str, Any]] = table.to_pylist()
    return found


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_files_hold_the_lists(
    model: Recommender, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranker, "_BLOCK_SCORES", 7 * 50)
    path = tmp_path / f"lists.{ending}"
    num_rows = write_lists(path, model.recommend_all(4, why=True))
    expected = pa.Table.from_batches(model.recommend_all(4, why=True)).to_pylist()
    found = read_back(path)
    assert num_rows == len(found) == len(expected)
    for row, other in zip(found, expected, strict=True):
        for name in ("user", "rank", "item", "because"):
            assert row[name] == other[name]
        assert np.float32(row["score"]) == np.float32(other["score"])
    assert path.stat().st_mode & 0o777 == 0o600, "lists say a lot about people"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_there_as_a_whole_or_not_at_all(model: Recommender, tmp_path: Path) -> None:
    def interrupted() -> Iterator[pa.RecordBatch]:
        yield next(model.recommend_all(3))
        raise KeyboardInterrupt

    path = tmp_path / "lists.csv"
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt):
        write_lists(path, interrupted())
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_titles_of_any_kind_survive_a_table(tmp_path: Path, data: Interactions) -> None:
    titles = np.array([f'A "quoted", {item}\nÜ' for item in data.item_ids])
    model = hushrec.PMF(num_rounds=1, num_factors=3, options=ONE_THREAD).fit(replace(data, titles=titles))
    path = tmp_path / "lists.csv"
    write_lists(path, model.recommend_all(2))
    options = pa_csv.ParseOptions(newlines_in_values=True)
    found = pa_csv.read_csv(path, parse_options=options).to_pylist()
    assert [row["title"] for row in found] == [titles[row["item"] - 1] for row in found]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("lists", "must end in .parquet, .csv, .jsonl"),
        ("lists.xlsx", "must end in .parquet, .csv, .jsonl"),
        ("there.csv", "is there already; choose another, or replace it with --force"),
        ("folder.csv", "is a folder; name a file in it"),
        ("x" * 300 + ".csv", r"--out cannot be used \(File name too long\); choose another file"),
    ],
)
def test_what_cannot_be_written_is_said_beforehand(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "there.csv").write_text("x")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(HushrecError, match=told) as caught:
        check_lists_file(tmp_path / name, replaces=False)
    assert "\n" not in str(caught.value)
    check_lists_file(tmp_path / "there.csv", replaces=True)


def test_a_place_that_cannot_be_written_is_named(model: Recommender, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(HushrecError, match=r"lists\.csv cannot be written \(.*\); choose another place"):
        write_lists(tmp_path / "file" / "lists.csv", model.recommend_all(1))

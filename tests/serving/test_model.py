from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushrec
from hushrec.errors import HushrecError, NewcomerError
from hushrec.runs.record import read_run, write_run
from hushrec.serving.model import (
    RequestError,
    ServedModel,
    UnknownUserError,
    Wish,
    check_may_serve,
    load_served,
)

PLAIN = Wish(10, False, 10)


class Exploding:
    """Gives newcomers one score that nobody can believe."""

    def __init__(self, score: float) -> None:
        self.score = score

    def fold_in(self, items: np.ndarray, _ratings: np.ndarray) -> np.ndarray:
        scores = np.full(50, 3.0, np.float32)
        scores[items] = self.score
        return scores


class Refusing:
    """Knows nobody but those whom it was trained with."""

    def fold_in(self, _items: np.ndarray, _ratings: np.ndarray) -> np.ndarray:
        raise NewcomerError("no newcomers")


def test_lists_are_the_recommenders(served: ServedModel, pmf_folder: Path) -> None:
    model = hushrec.load_run(pmf_folder)
    for wish in (PLAIN, Wish(3, True, 0), Wish(1000, False, 30)):
        options = {"k": wish.k, "exclude_seen": not wish.include_seen, "min_raters": wish.min_raters}
        for user in (1, 40, 80):
            assert served.for_user(str(user), wish) == model.recommend(user, **options)[0]
        found = served.for_newcomer([3, "1", 40], [5, 1.0, 4], wish)
        assert found == model.recommend_newcomer([3, 1, 40], [5, 1, 4], **options)
    assert served.for_user("1", PLAIN)[0].title.startswith("Title ")


@pytest.mark.parametrize(
    "user_id",
    [
        "0",
        "81",
        "",
        " 1",
        "1 ",
        "01",
        "+1",
        "1.0",
        "1_0",
        "-1",
        "١",
        "1\0",
        "\0",
        "9" * 5000,
        "\ud800",
        "x" * 9999,
    ],
)
def test_only_exact_ids_are_known(served: ServedModel, user_id: str) -> None:
    with pytest.raises(UnknownUserError) as caught:
        served.for_user(user_id, PLAIN)
    assert str(caught.value) == ""


def test_ids_may_be_texts(tmp_path: Path) -> None:
    lines = [f"a/b {user},Ü{item},{1 + (user * item) % 5}" for user in range(12) for item in range(12)]
    (tmp_path / "shop.csv").write_text("\n".join(["user,item,rating", *lines]), encoding="utf-8")
    hushrec.PMF(num_rounds=2, num_factors=2).fit(hushrec.read(tmp_path / "shop.csv")).save(tmp_path / "model")
    model = load_served(tmp_path / "model")
    assert len(model.for_user("a/b 3", Wish(5, True, 0))) == 5
    assert len(model.for_newcomer(["Ü3"], [5], Wish(50, False, 0))) == 11
    with pytest.raises(UnknownUserError):
        model.for_user("a/b 3\0", Wish(5, True, 0))


@pytest.mark.parametrize(
    ("items", "ratings", "told"),
    [
        ([1, 2], [5], "2 items and 1 ratings; give one rating per item"),
        ([1], [5, 4], "1 items and 2 ratings"),
        ([1, 999, 2], [5, 4, 3], "item 2 of 3 is not known to this model"),
        ([1, 10**40], [5, 4], "item 2 of 2 is not known"),
        ([1, "private"], [5, 4], "item 2 of 2 is not known"),
        ([1, 2, "1"], [5, 4, 3], "an item is listed twice"),
        ([1], [5.5], "a rating is outside of 1 to 5"),
        ([1], [0], "a rating is outside of 1 to 5"),
        ([1], [1e300], "a rating is outside of 1 to 5"),
        ([1], [float("nan")], "a rating is outside of 1 to 5"),
    ],
)
def test_bad_ratings_are_refused(served: ServedModel, items: Any, ratings: Any, told: str) -> None:
    with pytest.raises(RequestError, match=told) as caught:
        served.for_newcomer(items, ratings, PLAIN)
    assert "private" not in str(caught.value)


def test_too_many_raters_are_refused(served: ServedModel) -> None:
    most = int(served.ranker.num_raters.max())
    assert served.for_user("1", Wish(5, True, most))
    for ask in (lambda wish: served.for_user("1", wish), lambda wish: served.for_newcomer([1], [5], wish)):
        with pytest.raises(RequestError, match=f"use a min_raters of at most {most}"):
            ask(Wish(5, True, most + 1))


@pytest.mark.parametrize(
    ("score", "told"), [(np.inf, "scores that are not finite"), (-446, "far outside of 1 to 5")]
)
def test_scores_that_explode_are_no_list(served: ServedModel, score: float, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        replace(served, ranker=replace(served.ranker, scorer=Exploding(score))).for_newcomer([1], [5], PLAIN)


# --- Who may serve -----------------------------------------------------------------------------------------


def test_a_server_that_can_rank_may_serve(served: ServedModel) -> None:
    for party in ("all", "server", "node"):
        check_may_serve(replace(served.run, party=party), is_simulation=False)


def test_a_simulation_needs_to_be_called_one(fedrec_folder: Path) -> None:
    with pytest.raises(HushrecError) as caught:
        load_served(fedrec_folder)
    assert str(caught.value) == (
        "the server of fedrec cannot rank, users' vectors are their own; "
        "use `hushrec recommend` on a node, or --simulation to serve this simulation's vectors"
    )
    assert load_served(fedrec_folder, is_simulation=True).for_user("1", PLAIN)


def test_a_node_may_serve_its_own_users(fedrec_folder: Path) -> None:
    check_may_serve(replace(read_run(fedrec_folder), party="node"), is_simulation=False)


def test_the_server_of_a_deployment_cannot(fedrec_folder: Path, tmp_path: Path) -> None:
    write_run(tmp_path, replace(read_run(fedrec_folder), party="server"))
    for is_simulation in (False, True):
        with pytest.raises(HushrecError, match=r"^the server of fedrec cannot rank; use `hushrec recommend`"):
            load_served(tmp_path, is_simulation=is_simulation)


def test_a_model_without_newcomers_says_so(served: ServedModel) -> None:
    with pytest.raises(RequestError, match="only users that it was trained with"):
        replace(served, ranker=replace(served.ranker, scorer=Refusing())).for_newcomer([3], [1.0], PLAIN)

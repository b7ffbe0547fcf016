"""What stands beside the accuracy of a fold: what its lists are like, and how well simple baselines do.

Baselines are centralised: they see all training rows. They are measured by the same functions as the federated
model, on the same test rows, with the same candidates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter, process_time

import numpy as np
from numpy.typing import NDArray

from hushrec.baselines import BASELINES, Baseline, are_installed
from hushrec.data import Interactions
from hushrec.draws import Draws
from hushrec.errors import how_to_install
from hushrec.evaluation import evaluated_users, ranking_per_user
from hushrec.evaluation.candidates import candidates
from hushrec.evaluation.feedback import ranking_quality, rating_quality, relevance_limit
from hushrec.evaluation.lists import MOST_SCORES, list_measures
from hushrec.evaluation.scoring import Predictor, scores_among
from hushrec.protocol import Scorer
from hushrec.runs.record import FoldResult, Run
from hushrec.runtime.training import Job

# Unless told, baselines take at most this share of the time that the fold itself took, or a second.
_SHARE_OF_TIME = 0.1
_SECONDS_ALLOWED = 1.0
THIRDS = ("few ratings", "some ratings", "many ratings")  # of users, by their training rows


@dataclass(frozen=True)
class Beside:
    """Whether baselines are wished for (None: those that take little time), and who is told what was left out."""

    baselines: bool | None = None
    notify: Callable[[str], None] = lambda _: None


def with_beside(
    result: FoldResult, job: Job, scorer: Scorer, test: Interactions, plan: Run, seconds: float, wished: Beside
) -> FoldResult:
    """The result of a fold, which took so many seconds, with its lists measured and baselines beside it.

    Which baselines are measured is decided with the first fold, so that all means go over the same folds.
    """
    if plan.folds:
        chosen = [one for one in BASELINES if one.name in plan.folds[0].baselines]
    else:
        chosen = _chosen(job, test, plan, seconds, wished)
    rank = bool(chosen) and _can_rank_again(job, test, plan)
    baselines = {}
    for one in chosen:
        model = one.fit(job.system.feedback.liked(job.train), job.seed)
        baselines[one.name] = baseline_metrics(one, model, job, test, plan)
        baselines[one.name] |= third_metrics(model, job, test, plan, one.predicts_ratings, rank)
    has_ratings = "RMSE" in result.metrics and any(one.predicts_ratings for one in chosen)
    return replace(
        result,
        lists=_lists(job, scorer, plan),
        thirds=third_metrics(scorer, job, test, plan, has_ratings, rank),
        baselines=baselines,
    )


def main_length(lengths: Sequence[int]) -> int:
    """The length of the lists that are looked at: 10, or the longest."""
    return 10 if 10 in lengths else max(lengths)


def baseline_metrics(
    baseline: Baseline, model: Predictor, job: Job, test: Interactions, plan: Run
) -> dict[str, float]:
    """Metrics of a baseline that learned from the same rows: of rankings, and of ratings if it predicts them."""
    metrics = rating_quality(model, test) if baseline.predicts_ratings else {}
    wished = plan.at, plan.relevant_from, plan.provenance.min_raters or 0
    return metrics | ranking_quality(model, job.train, test, *wished)


def third_metrics(
    model: Predictor, job: Job, test: Interactions, plan: Run, has_ratings: bool, has_lists: bool
) -> dict[str, float]:
    """RMSE and NDCG of the users with few, some and many training ratings, as in "RMSE, few ratings".

    The users of each metric, those with a (relevant) test row, are sorted by their training rows and cut in three.
    """
    train, found = job.train, dict[str, float]()
    num_rows = np.bincount(train.users, minlength=train.num_users)
    if has_ratings:
        of_user = _thirds(num_rows, np.unique(test.users))
        for place, word in enumerate(THIRDS):
            rows = test.select(of_user[test.users] == place)
            found |= {f"RMSE, {word}": rating_quality(model, rows)["RMSE"]} if len(rows) else {}
    if has_lists:
        limit, length = relevance_limit(test, plan.relevant_from), main_length(plan.at)
        is_candidate = candidates(train, plan.provenance.min_raters or 0)
        rows_of = train.by_user(), test.by_user()
        users = evaluated_users(rows_of[1], limit)
        values = ranking_per_user(
            scores_among(model, is_candidate), *rows_of, (length,), limit, candidates=is_candidate
        )
        third = _thirds(num_rows, users)[users]
        for place, word in enumerate(THIRDS):
            if (third == place).any():
                found[f"NDCG@{length}, {word}"] = float(values[f"NDCG@{length}"][third == place].mean())
    return found


def _thirds(num_rows: NDArray[np.int64], users: NDArray[np.integer]) -> NDArray[np.int8]:
    """Of each user the place of its third: 0 with the fewest training rows, 2 with the most."""
    order = users[np.argsort(num_rows[users], kind="stable")]
    thirds = np.zeros(len(num_rows), np.int8)
    thirds[order] = np.arange(len(order)) * len(THIRDS) // max(1, len(order))
    return thirds


def _can_rank_again(job: Job, test: Interactions, plan: Run) -> bool:
    """Whether it takes seconds, not minutes, to rank all items once more for all who were measured."""
    users = evaluated_users(test.by_user(), relevance_limit(test, plan.relevant_from))
    return 0 < len(users) * job.train.num_items <= MOST_SCORES


def _lists(job: Job, scorer: Scorer, plan: Run) -> dict[str, float]:
    train, min_raters = job.train, plan.provenance.min_raters or 0
    length, draws = main_length(plan.at), Draws(job.seed)
    rows, is_candidate = train.by_user(), candidates(train, min_raters)
    score = scores_among(scorer, is_candidate)
    return list_measures(score, rows, train.num_items, length, draws, is_candidate)


def _chosen(job: Job, test: Interactions, plan: Run, seconds: float, wished: Beside) -> list[Baseline]:
    """All that suit, or those that fit into the time, from the cheapest on; what is left out is told."""
    if wished.baselines is False:
        return []
    fitting = [one for one in BASELINES if one.suits(job.train, job.system.feedback)]
    missing = [] if are_installed() else [one.name for one in fitting if one.is_of_package]
    if missing:
        wished.notify(f"no {' and '.join(missing)} beside it; to have them: {how_to_install('baselines')}")
    fitting = [one for one in fitting if one.name not in missing]
    if wished.baselines:
        return fitting
    num_lists = len(evaluated_users(test.by_user(), relevance_limit(test, plan.relevant_from)))
    is_candidate = candidates(job.train, plan.provenance.min_raters or 0)
    num_candidates = job.train.num_items if is_candidate is None else int(np.count_nonzero(is_candidate))
    needed = np.cumsum([one.seconds(job.train, num_lists, num_candidates) for one in fitting])
    num_chosen = int(np.searchsorted(needed, max(_SECONDS_ALLOWED, _SHARE_OF_TIME * seconds), side="right"))
    late = [one.name for one in fitting[num_chosen:]]
    if late:
        share = f"{_SHARE_OF_TIME:.0%} of the run's time"
        them = "it" if len(late) == 1 else "them"
        wished.notify(f"no {', '.join(late)} beside it: more than {share}; --baselines adds {them}")
    return fitting[:num_chosen]


def stopwatch() -> Callable[[], float]:
    """Tells the seconds since it was made, as if nobody else used the machine: busy, it gives us less CPU time."""
    started, cpu = perf_counter(), process_time()
    return lambda: min(perf_counter() - started, process_time() - cpu)

"""How good a model is: metrics of ratings and of rankings, after a round and at the end."""

from typing import Any

import numpy as np

from hushrec.data import Interactions, Split
from hushrec.errors import HushrecError
from hushrec.evaluation import evaluated_users, ranking_metrics, rating_metrics
from hushrec.protocol import Feedback, Scorer, System
from hushrec.runs.record import Run
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.training import Job, data_for


def check_measurable(system: System[Any, Any, Any], test: Interactions) -> None:
    """Refuse, before training, a test part on which nothing can be measured after a round."""
    if system.feedback != "explicit" and not len(evaluated_users(test.by_user(), relevance_limit(test, None))):
        raise HushrecError(
            "no user has a relevant item in the test part; bring more data, or choose another --split"
        )


def round_metrics(job: Job, progress: Progress, test: Interactions, at: tuple[int, ...]) -> dict[str, float]:
    """What is measured after every round."""
    scorer = job.scorer(progress)
    if job.system.feedback == "explicit":
        return rating_quality(scorer, test)
    limit, lengths = relevance_limit(test, None), at if job.system.feedback == "signed" else (max(at),)
    metrics = ranking_metrics(scorer.score, job.train.by_user(), test.by_user(), lengths, limit)
    if job.system.loss is not None:
        for name, rows in (("train loss", job.train), ("test loss", test)):
            metrics[name] = job.system.loss(progress.state, data_for(job.system, rows).by_owner())
    return {name: metrics[name] for name in curve_names(job.system, at)}


def curve_names(system: System[Any, Any, Any], at: tuple[int, ...]) -> tuple[str, ...]:
    """The metrics of a learning curve."""
    if system.feedback == "signed":
        ranked = tuple(f"{name}@{length}" for name in ("MAP", "NDCG") for length in sorted(at, reverse=True))
        return (*ranked, "train loss", "test loss")
    return ("MAE", "RMSE") if system.feedback == "explicit" else (f"Recall@{max(at)}", f"NDCG@{max(at)}")


def evaluate(
    scorer: Scorer,
    train: Interactions,
    test: Interactions,
    at: tuple[int, ...],
    relevant_from: float | None = None,
    feedback: Feedback = "explicit",
) -> dict[str, float]:
    """Rating metrics, if ratings were learned, and ranking metrics, if some of them are relevant."""
    has_ratings = test.ratings is not None and feedback == "explicit"
    metrics = rating_quality(scorer, test) if has_ratings else {}
    rows, limit = test.by_user(), relevance_limit(test, relevant_from)
    if len(evaluated_users(rows, limit)):
        metrics |= ranking_metrics(scorer.score, train.by_user(), rows, at, limit)
    return metrics


def relevance_limit(test: Interactions, relevant_from: float | None) -> float | None:
    """From which rating on an item is relevant: as told, or the upper quarter of the range, or all."""
    if relevant_from is not None or test.rating_range is None:
        return relevant_from
    low, high = test.rating_range
    return low + 0.75 * (high - low)


def final_metrics(job: Job, progress: Progress, test: Interactions, plan: Run) -> dict[str, float]:
    """Metrics of the model, and of what else there is, by its name."""
    system, train = job.system, job.train
    metrics = evaluate(job.scorer(progress), train, test, plan.at, plan.relevant_from, system.feedback)
    more = {} if system.more_models is None else system.more_models(progress.state, progress.private, job.config)
    for name, scorer in more.items():
        found = evaluate(scorer, train, test, plan.at, plan.relevant_from, system.feedback)
        metrics |= {f"{name} {metric}": value for metric, value in found.items()}
    return metrics


def group_metrics(job: Job, progress: Progress, split: Split) -> dict[str, float]:
    """Rating metrics of those test rows that a split wants measured by themselves."""
    scorer = job.scorer(progress)
    metrics: dict[str, float] = {}
    for name, is_in in split.groups.items():
        if is_in.any():
            found = rating_quality(scorer, split.test.select(is_in))
            metrics |= {f"{name} {metric}": value for metric, value in found.items()}
    return metrics


def rating_quality(scorer: Scorer, test: Interactions) -> dict[str, float]:
    """MAE and RMSE."""
    assert test.ratings is not None
    return rating_metrics(scorer.predict(test.users, test.items), test.ratings)


def num_cold(train: Interactions, test: Interactions) -> int:
    """Test ratings whose user or item has no training rating."""
    is_known_user = np.bincount(train.users, minlength=train.num_users) > 0
    is_known_item = np.bincount(train.items, minlength=train.num_items) > 0
    return int(np.count_nonzero(~(is_known_user[test.users] & is_known_item[test.items])))

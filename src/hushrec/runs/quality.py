"""How good a model is: metrics of ratings and of rankings, after a round and at the end."""

from collections.abc import Callable

import numpy as np

from hushrec.data import Interactions, Split
from hushrec.draws import Draws
from hushrec.evaluation import sampled_metrics
from hushrec.evaluation.feedback import cold_rows, rating_quality, warm_and_cold
from hushrec.protocol import AnySystem
from hushrec.runs.record import Run
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.training import Job

_PARTS = ("train", "test")

RoundMetrics = Callable[[Progress], dict[str, float]]


def round_metrics(job: Job, test: Interactions, at: tuple[int, ...], min_raters: int = 0) -> RoundMetrics:
    """What is measured after a round: the model, and the losses of the system, if it has some."""
    system, losses = job.system, job.system.result.losses
    parts = [system.holders.rows(part) for part in (job.train, test)] if losses else []

    def measure(progress: Progress) -> dict[str, float]:
        metrics = system.feedback.curve(job.scorer(progress), job.train, test, at, min_raters)
        for part, rows in zip(_PARTS, parts, strict=bool(losses)):
            of_part = {name: loss(progress.state, progress.private, rows) for name, loss in losses.items()}
            metrics |= {f"{part} {name}": value for name, value in of_part.items()}
        return metrics

    return measure


def curve_names(system: AnySystem, at: tuple[int, ...]) -> tuple[str, ...]:
    """The metrics of a learning curve, in the order in which they are measured."""
    losses = [f"{part} {name}" for part in _PARTS for name in system.result.losses]
    return (*system.feedback.curve_names(at), *losses)


def final_metrics(job: Job, progress: Progress, test: Interactions, plan: Run) -> dict[str, float]:
    """Metrics of the model, and of what else there is, by its name."""
    system, train = job.system, job.train
    wished = plan.at, plan.relevant_from, plan.provenance.min_raters or 0
    metrics = system.feedback.evaluate(job.scorer(progress), train, test, *wished)
    if "RMSE" in metrics:
        metrics |= warm_and_cold(job.scorer(progress), train, test)
    for name, model in system.result.also.items():
        scorer = model(progress.state, progress.private, job.config)
        found = system.feedback.evaluate(scorer, train, test, *wished)
        metrics |= {f"{name} {metric}": value for metric, value in found.items()}
    if plan.provenance.sampled:
        score, draws = job.scorer(progress).score, Draws(job.seed)
        rows = train.by_user(), test.by_user()
        metrics |= sampled_metrics(score, *rows, draws, plan.at, plan.provenance.sampled)
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


def num_cold(train: Interactions, test: Interactions) -> int:
    """Test ratings whose user or item has no training rating."""
    return int(np.count_nonzero(cold_rows(train, test)))

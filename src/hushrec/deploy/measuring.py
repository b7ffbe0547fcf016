"""Quality of a deployed model: nodes measure on their own test ratings and send means; the server joins them."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hushrec.data import Interactions
from hushrec.deploy.enrolment import NodeSettings
from hushrec.deploy.orders import Invitation, Measure, Measured
from hushrec.evaluation import evaluated_users
from hushrec.evaluation.feedback import rating_quality, relevance_limit
from hushrec.privacy.user_privacy import is_private
from hushrec.protocol import AnySystem, alike_arrays
from hushrec.runs.folds import planned_run
from hushrec.runs.record import FoldResult, Run, write_run
from hushrec.runs.run_settings import settings_for
from hushrec.runtime.checkpoint import digest
from hushrec.runtime.training import prepared
from hushrec.settings import shown_to_parties


def measure(
    folder: Path,
    settings: NodeSettings,
    invitation: Invitation,
    system: AnySystem,
    config: Any,
    train: Interactions,
    private: Any,
    order: Measure,
) -> Measured:
    """Make the node's folder one that `hushrec recommend` takes, and measure if there are test ratings."""
    train = replace(train, rating_range=invitation.rating_range)
    promises = dict(system.result.promises(private, config))
    if system.result.party is None:
        return Measured(facts=dict(system.result.facts(private, config)), promises=promises)
    kept = without_deal(
        planned_run(system, config, train, settings_for(system, at=order.at, min_raters=order.min_raters))
    )
    shown = shown_to_parties(config)  # of what is secret, a node has but the defaults
    fold = _own_fold(config.num_rounds, len(train))
    write_run(folder, replace(kept, config=shown, party="node", folds=[fold]))
    alike = alike_arrays(private)
    model_sha256 = digest(alike) if alike else ""
    if settings.files.test is None or is_private(config):  # metrics have no noise, and would be in no ledger
        return Measured(model_sha256=model_sha256, promises=promises)
    test = system.holders.read_test(settings.files, train, invitation.catalogue, invitation.rating_range)
    scorer = system.result.party(private, config, invitation.rating_range)
    train, test = prepared(system, train, config), prepared(system, test, config)
    # Where the server has a model of its own, the clients' is another one.
    prefix = "client " if system.result.server is not None else ""
    min_raters = kept.provenance.min_raters or 0  # as in the lists that `hushrec recommend` shows on this node
    found = system.feedback.evaluate(scorer, train, test, order.at, order.relevant_from, min_raters)
    metrics = {prefix + name: value for name, value in found.items()}
    for group, is_in in system.holders.groups(train, test).items():
        metrics |= {f"{group} {name}": value for name, value in rating_quality(scorer, test.select(is_in)).items()}
    limit = relevance_limit(test, order.relevant_from)
    num_users = len(evaluated_users(test.by_user(), limit))
    return Measured(metrics, len(test), num_users, len(train), promises=promises, model_sha256=model_sha256)


def without_deal(plan: Run) -> Run:
    """The data of a deployed run was dealt by nobody that we know of."""
    return replace(plan, provenance=replace(plan.provenance, deal=None))


def _own_fold(num_rounds: int, num_train: int) -> FoldResult:
    """The only fold of a node's folder: a model without test metrics."""
    return FoldResult(1, {}, "", None, 0.0, 0.0, {}, num_rounds, num_train, 0, None, [], {})


def joined(parts: Sequence[Measured]) -> dict[str, float]:
    """Metrics over all nodes' test ratings, as if they lay in one place."""
    metrics: dict[str, float] = {}
    for name in dict.fromkeys(name for part in parts for name in part.metrics):
        is_rating = name.endswith(("MAE", "RMSE"))
        having = [part for part in parts if name in part.metrics]
        weights = np.array([part.num_test if is_rating else part.num_users for part in having])
        values = np.array([part.metrics[name] for part in having])
        if not weights.any():
            continue
        if name.endswith("RMSE"):
            metrics[name] = math.sqrt(float(weights @ values**2) / float(weights.sum()))
        else:
            metrics[name] = float(weights @ values) / float(weights.sum())
    return metrics


def summed_facts(parts: Sequence[Measured]) -> dict[str, float]:
    """Sum of each fact over all nodes."""
    names = dict.fromkeys(name for part in parts for name in part.facts)
    return {name: sum(part.facts.get(name, 0.0) for part in parts) for name in names}


def weakest_promises(parts: Sequence[Measured]) -> dict[str, float]:
    """What noise promises on all nodes: the largest of each number."""
    names = dict.fromkeys(name for part in parts for name in part.promises)
    return {name: max(part.promises.get(name, 0.0) for part in parts) for name in names}


def shared_digest(parts: Sequence[Measured]) -> str:
    """The digest of a model that the server cannot read, as most nodes tell it: who missed the end has another."""
    told = Counter(part.model_sha256 for part in parts if part.model_sha256)
    return max(sorted(told), key=told.__getitem__, default="")

"""How the number of a table is read off a run: a metric, a point of a curve, bytes, vectors, seconds."""

from collections.abc import Callable

from hushrec.experiments.published import Table
from hushrec.runs.record import FoldResult, Run

_FROM_NOTHING = 1e9  # how much a metric grew that began at 0: more than any limit


def measured(table: Table, metric: str, done: Run) -> list[float]:
    """The number of each fold."""
    return [_of_fold(table, metric, done, fold) for fold in done.folds]


def _of_fold(table: Table, metric: str, done: Run, fold: FoldResult) -> float:
    if table.kind == "communication" and metric in _COMMUNICATION:
        return _COMMUNICATION[metric](fold)
    if table.kind == "bytes":
        return sum(fold.sent_bytes.values()) / fold.num_rounds / done.num_parties / 1000
    if table.kind == "time":
        return sum(fold.seconds[metric].values())
    if table.kind == "cost" and metric in _COST:
        return _COST[metric](fold) / float(done.config["epochs"])
    return fold.metrics[metric] if metric in fold.metrics else of_curve(fold, metric)


def of_curve(fold: FoldResult, metric: str) -> float:
    """A value of a learning curve ("NDCG@10, epoch 1", "round 5", "end", "best"), or one over another."""
    name, _, when = metric.partition(", ")
    late, _, early = when.partition(" over ")
    value = _at(fold.curve[name], late, is_loss(name))
    if not early:
        return value
    start = _at(fold.curve[name], early, is_loss(name))
    return value / start if start else _FROM_NOTHING


def _at(curve: list[float], when: str, has_least_best: bool) -> float:
    if when == "best":
        return min(curve) if has_least_best else max(curve)
    return curve[-1 if when == "end" else int(when.removeprefix("epoch ").removeprefix("round ")) - 1]


def is_loss(name: str) -> bool:
    """Whether less of a metric is better."""
    return "loss" in name or name in ("MAE", "RMSE")


# --- Costs of DRIFT, per epoch ------------------------------------------------------------------------------

_COST: dict[str, Callable[[FoldResult], float]] = {
    "deliveries": lambda fold: fold.facts["interactions accepted"],
    "vectors": lambda fold: _vectors(fold, "Vectors"),
    "MB": lambda fold: sum(fold.sent_bytes.values()) / 1e6,
    "CPU s": lambda fold: fold.cpu_seconds,
}


# --- Table 3 of FedRec++: the unit is one vector; see the paper's caption ---------------------------------

_VECTOR_BYTES = 20 * 4  # 20 factors of 4 bytes


def _vectors(fold: FoldResult, message: str) -> int:
    return sum(count.rows for count in fold.messages if count.type == message)


def _senders(fold: FoldResult, message: str) -> int:
    return max(1, sum(count.messages for count in fold.messages if count.type == message))


def _of_denoiser(fold: FoldResult) -> float:
    """Noise received and sums sent, per denoiser and round."""
    return (_vectors(fold, "Noise") + _vectors(fold, "DenoisingSums")) / _senders(fold, "DenoisingSums")


def _of_ordinary(fold: FoldResult) -> float:
    """Gradients and noise sent, per ordinary client and round."""
    return (_vectors(fold, "ItemGradients") + _vectors(fold, "Noise")) / _senders(fold, "ItemGradients")


def _of_client(fold: FoldResult) -> float:
    """All that is sent, per client and round; a sum's count is one unit more."""
    sent = _vectors(fold, "ItemGradients") + _vectors(fold, "Noise") + 2 * _vectors(fold, "DenoisingSums")
    has_denoisers = any(count.type == "DenoisingSums" and count.messages for count in fold.messages)
    senders = _senders(fold, "ItemGradients") + (_senders(fold, "DenoisingSums") if has_denoisers else 0)
    return sent / senders


def _added_mb(fold: FoldResult) -> float:
    """What denoising adds to a client's cost in the paper's 100 rounds, in its MB of 2^20 bytes."""
    of_fedrec = _vectors(fold, "ItemGradients") / _senders(fold, "ItemGradients")
    return (_of_client(fold) - of_fedrec) * _VECTOR_BYTES * 100 / 2**20


_COMMUNICATION: dict[str, Callable[[FoldResult], float]] = {
    "denoising": _of_denoiser,
    "ordinary": _of_ordinary,
    "client": _of_client,
    "added MB": _added_mb,
}

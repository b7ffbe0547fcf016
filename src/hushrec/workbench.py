"""What the command line does with runs, for Python: audit, compare and report, of estimators and runs' folders."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from hushrec.audit.attacks import attacks_named
from hushrec.audit.colluders import parse_colluders
from hushrec.audit.driver import audit as attack
from hushrec.audit.scoreboard import Finding
from hushrec.data import Interactions, load
from hushrec.data.checking import Duplicates
from hushrec.data.reading import ColumnNames, Missing
from hushrec.errors import HushrecError, option
from hushrec.estimators import estimator_named
from hushrec.progress import counting
from hushrec.protocol import Role
from hushrec.recommender import Recommender
from hushrec.registry import SYSTEMS
from hushrec.report.comparison import comparison_rows
from hushrec.report.page import write_report
from hushrec.report.samples import sample_lists_of
from hushrec.runs.arguments import lengths_of, rows_to_measure
from hushrec.runs.folds import fitted_run, load_fold
from hushrec.runs.record import Run, read_run
from hushrec.runs.suiting import by_data
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, job_for, prepared
from hushrec.systems.drift.live_folder import is_live
from hushrec.tables import Rows

Model = Recommender | str | Path  # an estimator, or the folder of a run
Models = Model | Sequence[Model] | Mapping[str, Model]


@dataclass(frozen=True)
class _Reading:
    """How frames of training and test rows are read."""

    columns: ColumnNames | None
    duplicates: Duplicates
    missing: Missing
    skip_unknown: bool = False

    def load(self, data: Any) -> Interactions:
        return load(data, columns=self.columns, duplicates=self.duplicates, missing=self.missing)


class Audit(Rows[Finding]):
    """What came of every attack, and which ones found nothing to look at, with the reason."""

    def __init__(self, findings: Sequence[Finding], left_out: Mapping[str, str]) -> None:
        """Hold both."""
        super().__init__(findings, _table_of_findings(findings))
        self.left_out = dict(left_out)


def audit(
    model: Model,
    data: Any = None,
    *,
    columns: ColumnNames | None = None,
    duplicates: Duplicates = "error",
    missing: Missing = "refuse",
    fold: int | None = None,
    attacks: Sequence[str] | None = None,
    colluders: str | None = None,
    options: RuntimeOptions | None = None,
    progress: bool | None = None,
) -> Audit:
    """Attack what the server, a partner or an observer saw in a training, and say how much was found out.

    `model` is an estimator, the name of a system, or the folder of a run. With `data`, whatever `fit` takes, it is
    trained on that; without, as it was trained before. Training is done again either way, since messages are not
    kept; the model itself stays as it is. Every score stands beside that of a blind guess.

    `attacks` names those to make; default: all that apply. `colluders`, as in "server+denoiser", says who attacks,
    sharing what they saw; default: each attack has its own.
    """
    job = _job_to_audit(model, data, _Reading(columns, duplicates, missing), fold)
    told = options or (model.options if isinstance(model, Recommender) else RuntimeOptions())
    with counting(f"audit {job.system.name}", job.config.num_rounds, progress) as tell:
        roles = parse_colluders(colluders, job.system)
        names = None if attacks is None else ",".join(attacks)
        chosen = attacks_named(names, job.system, Role.ACTIVE_SERVER in roles)
        done = attack(job, told, lambda now, _scores: tell(now.round_number), chosen, roles)
    return Audit(done.findings, done.left_out)


def compare(
    models: Models,
    train: Any = None,
    test: Any = None,
    *,
    at: int | Sequence[int] | None = None,
    columns: ColumnNames | None = None,
    duplicates: Duplicates = "error",
    missing: Missing = "refuse",
    skip_unknown: bool = False,
    progress: bool | None = None,
) -> Rows[dict[str, Any]]:
    """Accuracy, bytes and CPU time of several models, a row for each.

    `models` are estimators and folders of runs; in a dict, by names of your own. Estimators are fitted to `train`
    if it is given, else they are fitted already; they are measured on `test`. Both are whatever `fit` takes.
    Bytes are per client and round. `same_model_as` names those that end with the same model, bit for bit.
    """
    reading = _Reading(columns, duplicates, missing, skip_unknown)
    runs = _runs_of(models, train, test, at, reading, progress)
    rows = comparison_rows(list(runs.values()))
    if isinstance(models, Mapping):
        names = {row["label"]: name for row, name in zip(rows, runs, strict=True)}
        rows = [
            row | {"label": names[row["label"]], "same_model_as": [names[one] for one in row["same_model_as"]]}
            for row in rows
        ]
    return Rows(rows, _table_of_rows(rows))


def report(
    models: Models,
    out: str | Path = "report.html",
    train: Any = None,
    test: Any = None,
    *,
    at: int | Sequence[int] | None = None,
    columns: ColumnNames | None = None,
    duplicates: Duplicates = "error",
    missing: Missing = "refuse",
    skip_unknown: bool = False,
    sample_lists: int = 0,
    progress: bool | None = None,
) -> Path:
    """Write one HTML page about models: accuracy, bytes, what is revealed, provenance; its path comes back.

    `models`, `train` and `test` are as in `hushrec.compare`. `sample_lists` shows the lists of so many people of
    each run's folder, unnamed; they are private.
    """
    reading = _Reading(columns, duplicates, missing, skip_unknown)
    runs = _runs_of(models, train, test, at, reading, progress)
    folders = [model for model in _named(models).values() if not isinstance(model, Recommender)]
    samples = [one for folder in folders for one in sample_lists_of(Path(folder), sample_lists)]
    return write_report(list(runs.values()), Path(out), samples if sample_lists else [])


# --- Audits ------------------------------------------------------------------------------------------------


def check_repeatable(folder: Path) -> None:
    """Refuse a run that cannot be made again from what its folder holds."""
    if is_live(folder):
        raise HushrecError(
            f"{folder} is of a live run, which cannot be made again from what is kept; audit a system with data"
        )
    kept = read_run(folder)
    if kept.party != "all":
        raise HushrecError(
            f"{folder} is the folder of a {kept.party}, without all clients' data; audit a simulation"
        )


def _job_to_audit(model: Model, data: Any, reading: _Reading, fold: int | None) -> Job:
    if isinstance(model, str) and model in SYSTEMS and data is not None:
        model = estimator_named(model)()
    if isinstance(model, str | Path):
        if data is not None:
            raise HushrecError(
                f"{model} is no system; a run's folder has its own data: leave {option('data')} out"
            )
        check_repeatable(Path(model))
        return load_fold(Path(model), fold)[0]
    if not isinstance(model, Recommender):
        raise HushrecError(f"{type(model).__name__} cannot be audited; give an estimator or the folder of a run")
    if data is None:
        job, _ = model._require_fitted()
        if job.party != "all":
            raise HushrecError(f"this is the model of a {job.party} alone; audit a simulation")
        return job
    train = reading.load(data)
    settings, _ = by_data(model.system, model.settings, train.name)
    return job_for(model.system, model.system.configure(settings), model.seed, train)


def _table_of_findings(findings: Iterable[Finding]) -> pa.Table:
    found = list(findings)
    ends = [finding.interval or (None, None) for finding in found]
    texts = {
        "attack": [finding.attack.name for finding in found],
        "by": [str(finding.attack.role) for finding in found],
        "guesses": [finding.attack.guesses for finding in found],
        "measure": [finding.attack.measure for finding in found],
    }
    numbers = {
        "score": [finding.score for finding in found],
        "low": [low for low, _ in ends],
        "high": [high for _, high in ends],
        "chance": [finding.chance for finding in found],
    }
    columns = {name: pa.array(values, pa.string()) for name, values in texts.items()}
    columns |= {name: pa.array(values, pa.float64()) for name, values in numbers.items()}
    return pa.table(columns | {"sentence": pa.array([finding.said() for finding in found], pa.string())})


# --- Comparisons -------------------------------------------------------------------------------------------


def _named(models: Models) -> dict[str, Model]:
    if isinstance(models, Mapping):
        return dict(models)
    if isinstance(models, Recommender | str | Path):
        return {"1": models}
    if not isinstance(models, Sequence):
        raise HushrecError(f"{type(models).__name__} is not taken; give estimators or folders of runs")
    return {str(place): model for place, model in enumerate(models, 1)}


def _runs_of(
    models: Models, train: Any, test: Any, at: int | Sequence[int] | None, reading: _Reading, progress: bool | None
) -> dict[str, Run]:
    named = _named(models)
    if not named:
        raise HushrecError("there is nothing to compare; give estimators or folders of runs")
    are_folders = [not isinstance(model, Recommender) for model in named.values()]
    if all(are_folders) and not (train is None and test is None):
        raise HushrecError("runs' folders have their own data; leave train= and test= out")
    rows = None if train is None else reading.load(train)
    measured = None if test is None else reading.load(test)
    found = {}
    for name, model in named.items():
        if isinstance(model, str | Path):
            found[name] = read_run(Path(model))
        elif isinstance(model, Recommender):
            own = model if rows is None else type(model)(**model.get_params()).fit(rows, progress=progress)
            found[name] = _measured_run(own, measured, at, reading)
        else:
            raise HushrecError(f"{type(model).__name__} is not taken; give estimators or folders of runs")
    if not any(run.folds for run in found.values()):
        raise HushrecError("no run has a finished fold to compare; finish one with: hushrec run ... --resume")
    return {name: run for name, run in found.items() if run.folds}


def _measured_run(model: Recommender, test: Any, at: int | Sequence[int] | None, reading: _Reading) -> Run:
    """A fitted model as a run of one fold."""
    if test is None:
        raise HushrecError("estimators are measured on rows that were not trained on; give test=")
    job, done = model._require_fitted()
    rows = prepared(model.system, rows_to_measure(test, job.train, reading.skip_unknown), job.config)
    lengths = model.system.feedback.usual_lengths if at is None else lengths_of(at)
    run = fitted_run(job, done, rows, model.ranker().min_raters, model.chosen, lengths)
    share = len(rows) / (len(rows) + len(job.train))
    return replace(run, provenance=replace(run.provenance, split="given", test_share=share))


def _table_of_rows(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The rows of a comparison with a column for each metric that one of them has."""
    metrics = dict.fromkeys(name for row in rows for name in row["mean"])
    before = {name: pa.array([row[name] for row in rows]) for name in ("label", "system", "data", "folds")}
    means = {name: pa.array([row["mean"].get(name) for row in rows], pa.float64()) for name in metrics}
    costs = ("up_bytes_per_client_round", "down_bytes_per_client_round", "cpu_seconds")
    after = {name: pa.array([float(row[name]) for row in rows], pa.float64()) for name in costs}
    same = {"same_model_as": pa.array([row["same_model_as"] for row in rows], pa.list_(pa.string()))}
    return pa.table(before | means | after | same)

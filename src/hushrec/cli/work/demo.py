"""The demo: the main job on real data, or on labelled synthetic data where there is no network at all."""

import shutil
from pathlib import Path
from typing import Any

from rich.table import Table

from hushrec.cli.console import note, print_json, results, show, watching
from hushrec.cli.work.recommend import print_recommendations
from hushrec.data import Interactions, load
from hushrec.errors import HushrecError, MissingExtraError
from hushrec.estimators import load_run
from hushrec.files import check_folder_to_write
from hushrec.registry import system_named
from hushrec.report.numbers import format_bytes, format_metric, format_number
from hushrec.report.page import write_report
from hushrec.report.tables import up_and_down
from hushrec.runs.folds import run
from hushrec.runs.record import Run, kept_run
from hushrec.runs.run_settings import RunSettings
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.settings import to_dict

JOBS = {
    "fedrec-rho-0": ("FedRec, rho 0: nothing hidden", "fedrec", {"rho": 0}),
    "fedrec-rho-3": ("FedRec, rho 3: hidden, with noise", "fedrec", {"rho": 3}),
    "fedrec++-rho-3": ("FedRec++, rho 3: hidden, noise taken out", "fedrec++", {"rho": 3, "denoisers": 1}),
}
NUM_RECOMMENDATIONS = 5
_SYNTHETIC = "synthetic:users=943,items=1682,ratings=100000"  # as large as ML-100K


def show_demo(folder: Path, synthetic: bool = False, as_json: bool = False) -> None:
    """Run the three jobs, compare them, recommend, and write the report."""
    check_folder_to_write(folder, "--out")
    data = load(_SYNTHETIC) if synthetic else _data()
    done = {name: _run(name, data, folder) for name in JOBS}
    is_equal = _are_identical(done)
    report = _report(done, folder)
    if as_json:
        print_json(
            {
                "runs": {name: one.summary() for name, one in done.items()},
                "identical": is_equal,
                "report": None if report is None else str(report),
            }
        )
    else:
        _tell(data, done, is_equal, folder)
        if report is not None:
            results().print(f"\nreport: {report}")
    if not is_equal:
        raise HushrecError("the lossless property does not hold; this is a bug, please report it")


def _are_identical(done: dict[str, Run]) -> bool:
    """Whether FedRec++ ends with the bits of FedRec without virtual items."""
    plain, denoised = done["fedrec-rho-0"].folds[0], done["fedrec++-rho-3"].folds[0]
    return (plain.model_sha256, plain.clients_sha256) == (denoised.model_sha256, denoised.clients_sha256)


def _report(done: dict[str, Run], folder: Path) -> Path | None:
    """The page, unless nothing is installed that could draw its figures."""
    try:
        return write_report(list(done.values()), folder / "report.html")
    except MissingExtraError as error:
        note(f"no report: {error}")
        return None


def _tell(data: Interactions, done: dict[str, Run], is_equal: bool, folder: Path) -> None:
    out = results()
    label = " (SYNTHETIC, made by a generator)" if data.is_synthetic else ""
    out.print(f"{data.num_users:,} clients, {data.num_items:,} items, {len(data):,} ratings: {data.name}{label}\n")
    show(_table(done))
    out.print(f"\nFedRec++ rho 3 and FedRec rho 0: identical to the last bit: {'yes' if is_equal else 'no'}\n")
    user = str(data.user_ids[0])
    out.print(f"{NUM_RECOMMENDATIONS} recommendations for user {user}, by FedRec++:")
    print_recommendations(load_run(folder / "fedrec++-rho-3").recommend([user], NUM_RECOMMENDATIONS)[0])


def _data() -> Interactions:
    try:
        return load("ml-100k", notify=note)
    except HushrecError as error:
        note(f"{error}")
        note("going on with synthetic data")
        return load(_SYNTHETIC)


def _run(name: str, data: Interactions, folder: Path) -> Run:
    title, system_name, settings = JOBS[name]
    system = system_named(system_name)
    config = system.configure(settings)
    _clear(folder / name, to_dict(config))
    with watching(title, config.num_rounds, 1) as watch:
        return run(
            system, config, data, RunSettings(min_raters=None), RuntimeOptions(), folder / name, watch=watch
        )


def _clear(folder: Path, config: dict[str, Any]) -> None:
    """Take an earlier demo away, and nothing that is not one: such a run has these settings, and no command."""
    kept = kept_run(folder, resume=True)
    if kept is not None and (kept.command or kept.config != config):
        raise HushrecError(f"{folder} holds a run that is of no demo; choose another --out")
    shutil.rmtree(folder, ignore_errors=True)


def _table(done: dict[str, Run]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in ("MAE", "RMSE", "up per client and round", "down", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, entry in done.items():
        up, down = up_and_down(entry)
        accuracy = [format_metric(entry.mean[metric]) for metric in ("MAE", "RMSE")]
        seconds = format_number(entry.folds[0].wall_seconds)
        table.add_row(JOBS[name][0], *accuracy, format_bytes(up), format_bytes(down), seconds)
    return table

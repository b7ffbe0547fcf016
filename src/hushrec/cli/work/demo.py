"""The demo: the main job on real data, or on labelled synthetic data where there is no network at all."""

import shutil
from pathlib import Path

from rich.table import Table

from hushrec.cli.console import note, results, show, watching
from hushrec.cli.work.recommend import print_recommendations
from hushrec.data import Interactions, load
from hushrec.errors import HushrecError
from hushrec.estimators import load_run
from hushrec.registry import system_named
from hushrec.report.numbers import format_bytes, format_metric, format_number
from hushrec.report.page import write_report
from hushrec.report.tables import up_and_down
from hushrec.runs.folds import run
from hushrec.runs.record import Run
from hushrec.runs.run_settings import RunSettings
from hushrec.runtime.in_process import RuntimeOptions

JOBS = {
    "fedrec-rho-0": ("FedRec, rho 0: nothing hidden", "fedrec", {"rho": 0}),
    "fedrec-rho-3": ("FedRec, rho 3: hidden, with noise", "fedrec", {"rho": 3}),
    "fedrec++-rho-3": ("FedRec++, rho 3: hidden, noise taken out", "fedrec++", {"rho": 3, "denoisers": 1}),
}
NUM_RECOMMENDATIONS = 5


def show_demo(folder: Path) -> None:
    """Run the three jobs, compare them, recommend, and write the report."""
    data = _data()
    done = {name: _run(name, data, folder) for name in JOBS}
    out = results()
    label = " (SYNTHETIC, made by a generator)" if data.is_synthetic else ""
    out.print(f"{data.num_users:,} clients, {data.num_items:,} items, {len(data):,} ratings: {data.name}{label}\n")
    show(_table(done))
    plain, denoised = done["fedrec-rho-0"].folds[0], done["fedrec++-rho-3"].folds[0]
    is_equal = (plain.model_sha256, plain.clients_sha256) == (denoised.model_sha256, denoised.clients_sha256)
    out.print(f"\nFedRec++ rho 3 and FedRec rho 0: identical to the last bit: {'yes' if is_equal else 'no'}\n")
    user = str(data.user_ids[0])
    out.print(f"{NUM_RECOMMENDATIONS} recommendations for user {user}, by FedRec++:")
    print_recommendations(load_run(folder / "fedrec++-rho-3").recommend([user], NUM_RECOMMENDATIONS)[0])
    out.print(f"\nreport: {write_report(list(done.values()), folder / 'report.html')}")
    if not is_equal:
        raise HushrecError("the lossless property does not hold; this is a bug, please report it")


def _data() -> Interactions:
    try:
        return load("ml-100k", notify=note)
    except HushrecError as error:
        note(f"{error}")
        note("going on with synthetic data")
        return load("synthetic:users=943,items=1682,ratings=100000")


def _run(name: str, data: Interactions, folder: Path) -> Run:
    title, system_name, settings = JOBS[name]
    system = system_named(system_name)
    config = system.configure(settings)
    shutil.rmtree(folder / name, ignore_errors=True)
    with watching(title, config.num_rounds, 1) as watch:
        return run(
            system, config, data, RunSettings(min_raters=None), RuntimeOptions(), folder / name, watch=watch
        )


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

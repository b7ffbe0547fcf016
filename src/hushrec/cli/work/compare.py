"""The comparison of runs: a table, JSON, a picture."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from hushrec.cli.console import note, print_json, show
from hushrec.errors import HushrecError
from hushrec.report.canvas import check_picture, write_picture
from hushrec.report.comparison import comparison_rows
from hushrec.report.figures import accuracy_against_bytes
from hushrec.report.findings import caveats, same_as
from hushrec.report.numbers import ABSENT, format_bytes, format_count, format_metric, format_seconds
from hushrec.report.tables import cpu_seconds, labels, main_metric, metric_rows, shown_metrics, up_and_down
from hushrec.report.verdict import common_baselines
from hushrec.runs.record import Run, read_run


def compare_runs(runs: Sequence[Path], picture: Path | None, as_json: bool) -> None:
    """Print the comparison, and draw it if that is asked for."""
    check_picture(picture)
    kept = [read_run(folder) for folder in runs]
    finished = [run for run in kept if run.folds]
    for line in caveats(kept):
        note(line)
    if not finished:
        raise HushrecError("no run has a finished fold to compare; finish one with: hushrec run ... --resume")
    if as_json:
        print_json({"runs": comparison_rows(finished), "notes": caveats(kept)})
    else:
        show(comparison_table(finished), num_keys=2)
    if picture is not None:
        _draw(finished, picture)


def comparison_table(runs: Sequence[Run]) -> Table:
    """A row per run, then one per centralised baseline, if all were tested on the same.

    The last column numbers the runs that end with the same model, bit for bit.
    """
    metrics, has_lists = _shown_metrics(runs), any(run.lists for run in runs)
    table = Table(box=None, pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("run")
    for heading in (*metrics, *(("distinct", "diversity", "within") if has_lists else ()), "up", "down", "CPU"):
        table.add_column(heading, justify="right")
    table.add_column("same model as")
    for place, (run, row, others) in enumerate(zip(runs, metric_rows(runs), same_as(runs), strict=True), 1):
        up, down = up_and_down(run)
        table.add_row(
            str(place),
            row.label,
            *(row.cells[name].text if name in row.cells else ABSENT for name in metrics),
            *(_list_cells(run) if has_lists else ()),
            format_bytes(up),
            format_bytes(down),
            format_seconds(cpu_seconds(run)[0]),
            ", ".join(str(other + 1) for other in others) or ABSENT,
        )
    for baseline, values in common_baselines(runs).items():
        if values.keys() & set(metrics):
            table.add_row("", f"{baseline}, centralised", *(format_metric(values.get(name)) for name in metrics))
    return table


def _list_cells(run: Run) -> list[str]:
    """Distinct items in all lists, how different these are, and how different the items of one list are."""
    if not run.lists:
        return [ABSENT, ABSENT, ABSENT]
    differences = (format_metric(run.lists.get(name)) for name in ("diversity", "diversity within"))
    return [format_count(run.lists["distinct items"]), *differences]


def _shown_metrics(runs: Sequence[Run]) -> list[str]:
    names = shown_metrics(runs)
    rating = [name for name in names if "@" not in name and " " not in name]  # of all test rows, not of groups
    kinds = ("NDCG", "HR") if any(name.startswith("HR@") for name in names) else ("NDCG", "MAP")
    ranking = [name for name in names if name.partition("@")[0] in kinds]
    return rating + ranking[-2:]


def _draw(runs: Sequence[Run], picture: Path) -> None:
    metric = main_metric(runs)
    if metric is None:
        raise HushrecError("these runs have no accuracy to draw; run with a test part")
    left_out = [label for run, label in zip(runs, labels(runs), strict=True) if metric not in run.mean]
    if left_out:
        note(f"not in the picture, as they have no {metric}: {', '.join(left_out)}")
    write_picture(accuracy_against_bytes(runs, metric), picture)
    note(f"picture: {picture}")

"""The page about runs."""

import webbrowser
from collections.abc import Sequence
from pathlib import Path

from hushrec.cli.console import note, print_json
from hushrec.report.findings import caveats
from hushrec.report.page import write_report
from hushrec.report.samples import sample_lists_of
from hushrec.report.tables import labels
from hushrec.runs.record import read_run


def report_runs(runs: Sequence[Path], out: Path, sample_lists: int, open_page: bool, as_json: bool) -> None:
    """Write the page, and say where it is."""
    kept = [read_run(folder) for folder in runs]
    samples = [one for folder in runs for one in sample_lists_of(folder, sample_lists)] if sample_lists else []
    path = write_report(kept, out, samples)
    for line in caveats(kept):
        note(line)
    if as_json:
        print_json({"report": str(path), "runs": labels(kept)})
    else:
        print(path)
    if open_page:
        webbrowser.open(path.resolve().as_uri())

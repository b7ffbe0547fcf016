"""The page about runs."""

import webbrowser
from collections.abc import Sequence
from pathlib import Path

from hushrec.audit.kept import read_audit
from hushrec.cli.console import note, print_json
from hushrec.report.findings import caveats
from hushrec.report.page import write_report
from hushrec.report.samples import sample_lists_of
from hushrec.report.tables import labels
from hushrec.runs.record import read_run
from hushrec.survey.record import read_survey_of


def report_runs(
    runs: Sequence[Path],
    out: Path,
    sample_lists: int,
    compared: Path | None,
    open_page: bool,
    as_json: bool,
) -> None:
    """Write the page, and say where it is."""
    survey = None if compared is None else read_survey_of(compared)
    kept = [read_run(folder) for folder in runs]
    samples = [one for folder in runs for one in sample_lists_of(folder, sample_lists)] if sample_lists else []
    audits = [read_audit(folder) for folder in runs]
    path = write_report(kept, out, samples, audits, survey)
    for line in caveats(kept):
        note(line)
    if as_json:
        print_json({"report": str(path), "runs": labels(kept)})
    else:
        print(path)
    if open_page:
        webbrowser.open(path.resolve().as_uri())

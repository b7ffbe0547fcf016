"""A model in files for other programs."""

from collections.abc import Sequence
from pathlib import Path

from hushrec.choices import Side
from hushrec.cli.console import note, print_json
from hushrec.estimators import load_run
from hushrec.handover.exports import checked_forms


def export_run(
    run: Path,
    to: Path,
    forms: Sequence[str],
    with_users: bool,
    fold: int | None,
    side: Side | None,
    as_json: bool,
) -> None:
    """Write the files, and say which."""
    known = checked_forms(forms)
    files = load_run(run, fold, side).export(to, known, with_users=with_users)
    if as_json:
        print_json({"files": [str(file) for file in files]})
    else:
        for file in files:
            print(file)
    if with_users:
        note("users' vectors are private: whoever has them and the items' knows what each user likes")

"""The card of a run's model."""

from pathlib import Path

from hushrec.audit.kept import read_audit
from hushrec.cli.console import print_json
from hushrec.files import write_file
from hushrec.handover.card import card_of
from hushrec.runs.record import read_run


def write_card(run: Path, out: Path | None, as_json: bool) -> None:
    """Print the card, or write it and say where."""
    text = card_of(read_run(run), read_audit(run))
    if out is not None:
        write_file(out, text.encode(), "--out")
    if as_json:
        print_json({"card": text} if out is None else {"card": text, "file": str(out)})
    else:
        print(text if out is None else out)

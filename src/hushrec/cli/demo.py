"""`hushrec demo`: the main job, from data to recommendations and a report."""

from pathlib import Path
from typing import Annotated

import typer

from hushrec.cli.groups import work
from hushrec.cli.options import AsJson


def demo(
    out: Annotated[
        Path, typer.Option(help="The folder for what it makes; a demo that is there is made anew.")
    ] = Path("demo"),
    synthetic: Annotated[
        bool, typer.Option("--synthetic", help="On data of a generator, without a look for ML-100K.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the main job in a minute: three runs on ML-100K, their bytes, recommendations, a report.

    ML-100K comes from $HUSHREC_DATA, from its publisher or out of a package; with no network at all the demo goes
    on with data of a generator, and says so.
    """
    work("demo").show_demo(out, synthetic, as_json)

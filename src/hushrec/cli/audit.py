"""`hushrec audit SYSTEM` or `hushrec audit RUN`: attacks side by side, beside blind guessing."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from hushrec.cli.commands import alone, length_of, of_system
from hushrec.cli.declared import Declared
from hushrec.cli.groups import work
from hushrec.cli.options import AsJson, Fold, Owners, RunFolder, Seed, Source, Split, TestShare, Threads
from hushrec.cli.said import Said
from hushrec.registry import system_named


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Options of `hushrec audit SYSTEM`, whatever the system."""

    source: Source
    said: Said
    seed: Seed = 0
    split: Split = None
    test_share: TestShare = 0.2
    owners: Owners = ""
    thetas: Annotated[
        str | None, typer.Option(help="Compare these thresholds of drift, as in 1,2,5,20, after one epoch each.")
    ] = None
    threads: Threads = None
    as_json: AsJson = False


def command_of(system: Declared) -> typer.Typer:
    """`hushrec audit SYSTEM`."""

    def audit(values: dict[str, Any], options: AuditOptions) -> None:
        work("audit").audit_system(system_named(system.name), values, options)

    return of_system(system, audit, f"audit {system.name} --data ml-100k {length_of(system, 5)}")


def command_of_folder() -> typer.Typer:
    """`hushrec audit RUN`."""
    return alone(of_folder, "RUN", "audit runs/one")


def of_folder(run: RunFolder, fold: Fold = None, threads: Threads = None, as_json: AsJson = False) -> None:
    """Make a run again from its settings and its training data, and attack it."""
    work("audit").audit_folder(run, fold, threads, as_json)

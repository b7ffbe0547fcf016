"""`hushrec audit SYSTEM` or `hushrec audit RUN`: attacks side by side, beside blind guessing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hushrec.cli.commands import alone, joined, length_of, of_system
from hushrec.cli.declared import Declared
from hushrec.cli.groups import work
from hushrec.cli.options import AsJson, Fold, Owners, Partners, RunFolder, Seed, Source, Split, TestShare, Threads
from hushrec.cli.said import Said
from hushrec.errors import HushrecError
from hushrec.registry import system_named

As = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="ROLE+ROLE",
        help="Who attacks, sharing what they saw, as in server+denoiser, or active-server, who lies, or client: "
        "some lie to spoil the model; default: each attack by its own roles.",
    ),
]
Attacks = Annotated[
    str | None, typer.Option(metavar="NAME,...", help="Only these attacks, as in listed-items,noise-match.")
]
Picture = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.png|svg", help="Draw how much each attack learns, round after round, into this file."
    ),
]


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Options of `hushrec audit SYSTEM`, whatever the system."""

    source: Source
    said: Said
    seed: Seed = 0
    split: Split = None
    test_share: TestShare = 0.2
    owners: Owners = ""
    partners: Partners = 2
    colluders: As = None
    attacks: Attacks = None
    thetas: Annotated[
        str | None, typer.Option(help="Compare these thresholds of drift, as in 1,2,5,20, after one epoch each.")
    ] = None
    malicious: Annotated[
        str | None,
        typer.Option(metavar="SHARE,...", help="Shares of clients that lie, with --as client. [0.001,0.01,0.05]"),
    ] = None
    threads: Threads = None
    picture: Picture = None
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class EpochOptions(AuditOptions):
    """The same, of a system that counts in epochs: who asks for rounds is told so."""

    rounds: Annotated[int | None, typer.Option(hidden=True, help="Counted in epochs here: use --epochs.")] = None


def command_of(system: Declared) -> typer.Typer:
    """`hushrec audit SYSTEM`."""

    def audit(values: dict[str, Any], options: AuditOptions) -> None:
        work("audit").audit_system(system_named(system.name), values, options)

    def audit_epochs(values: dict[str, Any], options: EpochOptions) -> None:
        if options.rounds is not None:
            raise HushrecError(f"--rounds {options.rounds}: {system.name} counts in epochs; write --epochs 2")
        audit(values, options)

    has_rounds = any(entry.name == "num_rounds" for entry in system.settings)
    verb = audit if has_rounds else audit_epochs
    return of_system(system, verb, f"audit {system.name} --data ml-100k {length_of(system, 5)}")


def command_of_folder() -> typer.Typer:
    """`hushrec audit RUN`."""
    return alone(joined(of_folder), "RUN", "audit runs/one")


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """Options of `hushrec audit RUN`."""

    fold: Fold = None
    colluders: As = None
    attacks: Attacks = None
    track: Annotated[
        bool,
        typer.Option("--track", help="Tell the trackers, too, that tracked.json in the folder names."),
    ] = False
    threads: Threads = None
    picture: Picture = None
    as_json: AsJson = False


def of_folder(run: RunFolder, options: FolderOptions) -> None:
    """Make a run again from its settings and its training data, and attack it; its report shows what was found."""
    work("audit").audit_folder(run, options)

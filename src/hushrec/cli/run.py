"""`hushrec run SYSTEM`: one command per system, its options made from what the system declares."""

from typing import Any

import typer

from hushrec.cli.commands import length_of, of_system
from hushrec.cli.declared import Declared
from hushrec.cli.groups import work
from hushrec.cli.live import LiveOptions
from hushrec.cli.options import RunOptions
from hushrec.registry import system_named


def command_of(system: Declared) -> typer.Typer:
    """`hushrec run SYSTEM`."""

    def run(values: dict[str, Any], options: RunOptions) -> None:
        work("run").run_system(system_named(system.name), values, options)

    def run_or_learn_live(values: dict[str, Any], options: LiveOptions) -> None:
        if options.live:
            work("live").run_live(system_named(system.name), values, options)
        else:
            run(values, options)

    verb = run_or_learn_live if system.learns_live else run
    return of_system(system, verb, f"run {system.name} --data ml-100k {length_of(system)}")

"""What the owner of a node sees of it: what he agreed to, what it gave away, what of its budget is left."""

from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from hushrec.cli.console import print_json, results, show
from hushrec.deploy.consent import ledger_of
from hushrec.deploy.enrolment import read_settings
from hushrec.deploy.kits import read_kit
from hushrec.deploy.node_ledger import EPSILON, RunEntry, spent_of, total_epsilon
from hushrec.deploy.node_told import noisy_and_plain, told_of_node
from hushrec.privacy.ledger import DELTA
from hushrec.report.numbers import format_count, format_number

_SHOWN = 8  # of a run's id, enough to name it


def show_node(kit: Path, as_json: bool) -> None:
    """Show what a node agreed to and gave away."""
    name, settings, entries = read_kit(kit).name, read_settings(kit), ledger_of(kit).entries()
    if as_json:
        print_json(told_of_node(name, settings, entries))
        return
    out = results()
    out.print(f"{name}: takes part in {', '.join(settings.systems)}", markup=False, highlight=False)
    for setting, value in settings.required.items():
        out.print(f"  only with {setting} {value}", markup=False, highlight=False)
    if settings.accepts_everything:
        out.print("  accepts everything, for a rehearsal")
    elif not settings.accepted:
        out.print("  accepts protected settings only")
    for words, since in settings.accepted.items():
        out.print(f"  accepted since {since}: {words}", markup=False, highlight=False)
    for limit, most in settings.budget.items():
        said = format_number if limit.endswith(EPSILON) else format_count
        spent = spent_of(limit, entries.values())
        left = max(most - spent, 0.0)
        out.print(f"  budget of {limit} {most:g}: {said(spent)} spent or held, {said(left)} left", highlight=False)
    if not entries:
        out.print("no run yet")
        return
    show(_table(entries))
    out.print(_sum(entries), highlight=False)


def _table(entries: Mapping[str, RunEntry]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "system", "began", "state", "rounds", "epsilon", "consent"):
        table.add_column(heading, justify="right" if heading in ("rounds", "epsilon") else "left")
    for run, entry in entries.items():
        opened, cost = entry.opened, entry.cost
        rounds = f"{len(entry.rounds)}/{opened.cost.rounds}"
        epsilon = "no noise" if cost.epsilon is None else format_number(cost.epsilon)
        state = "goes on" if entry.ended is None else "ended"
        table.add_row(run[:_SHOWN], opened.system, opened.time[:16], state, rounds, epsilon, opened.consent)
    return table


def _sum(entries: Mapping[str, RunEntry]) -> str:
    noisy, plain = noisy_and_plain(entries)
    told = f"{sum(len(entry.rounds) for entry in plain)} rounds without noise"
    if noisy:
        total = total_epsilon(entry.cost for entry in noisy)
        told += (
            f"; epsilon {format_number(total)} at delta {DELTA:g} over {len(noisy)} runs with noise, at most "
            "(Gaussian noise added up exactly, other noise by the plain sum)"
        )
    return told

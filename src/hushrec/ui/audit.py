"""The audit: what attacks found in runs, the ledger of epsilon, and systems as published beside repaired.

Shows what `hushrec audit RUN` and `hushrec compare` kept; nothing is attacked here.
"""

import math
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hushrec.audit.attacks import ATTACKS
from hushrec.audit.kept import KeptAudit, KeptFinding, read_audit
from hushrec.audit.scoreboard import Finding
from hushrec.audit.verdicts import verdicts
from hushrec.errors import HushrecError
from hushrec.privacy.ledger import epsilon_of_gaussian
from hushrec.protocol import AnySystem, Spending
from hushrec.registry import system_named
from hushrec.report.survey_table import heading_of, lines_below
from hushrec.report.tables import is_error
from hushrec.runs.record import Run, read_run
from hushrec.serving.gate import Problem
from hushrec.survey.costs import changes, cost_of
from hushrec.survey.record import FILE as COMPARISON
from hushrec.survey.record import Look, Row, Survey, measured_surveys, read_survey
from hushrec.ui.asking import Query
from hushrec.ui.index import RunIndex
from hushrec.ui.site import Site

_DEEPEST = 6  # folders below the one that is shown
_MOST_RUNS = 500
_WORDS_OF_NOISE = ("epsilon", "release")


def indexed(site: Site) -> RunIndex:
    """The index of runs, which is made first where there is none."""
    if site.index.progress().num_runs:
        site.index.look_soon()
    else:
        site.index.look()
    return site.index


def _folders_with(top: Path, file: str) -> Iterator[Path]:
    """Folders that hold a file; what a run's folder holds is not looked into."""
    for root, folders, files in os.walk(top):
        depth = len(Path(root).relative_to(top).parts)
        is_run = "run.json" in files
        folders[:] = (
            [] if is_run or depth >= _DEEPEST else sorted(one for one in folders if not one.startswith("."))
        )
        if file in files:
            yield Path(root)


# --- Runs ------------------------------------------------------------------------------------------------------


def _finding(kept: KeptFinding) -> dict[str, Any]:
    told = {"name": kept.name, "role": kept.role, "measure": kept.measure, "score": kept.score}
    told |= {"chance": kept.chance, "interval": kept.interval, "advantage": kept.advantage, "curve": kept.curve()}
    told |= {"word": kept.in_words, "is_above_chance": kept.is_above_chance}
    if kept.name in ATTACKS:
        attack = ATTACKS[kept.name]
        told |= {
            "guesses": attack.guesses,
            "sentence": attack.sentence.format(score=kept.score, chance=kept.chance),
        }
    return told


def _verdicts(run: Run, kept: KeptAudit) -> list[str]:
    """A line for each who attacks, as `hushrec audit` prints it."""
    system = system_named(run.system)
    config = system.configure(run.config)
    findings = [
        Finding(ATTACKS[one.name], one.score, one.chance, one.interval, one.rounds)
        for one in kept.findings
        if one.name in ATTACKS
    ]
    return verdicts(
        findings,
        config,
        system.about.repairs,
        lambda switch: cost_of(run.system, switch, run.provenance.data_sha256),
    )


def ledger_of(run: Run) -> dict[str, Any]:
    """What noise promises over the run: as the run told it, and after each round where noise is Gaussian."""
    told: dict[str, float] = {}
    for fold in run.folds:
        for name, value in fold.facts.items():
            if any(word in name for word in _WORDS_OF_NOISE):
                told[name] = max(value, told.get(name, 0.0))
    system = system_named(run.system)
    spends, rounds = _spending(system, run), int(run.config.get("num_rounds", 0))
    curve: list[float] = []
    if spends is not None and spends.multiplier and rounds and not run.config.get("most_sums"):
        curve = [
            epsilon_of_gaussian(spends.multiplier * math.sqrt(rounds / done), spends.delta)
            for done in range(1, rounds + 1)
        ]
    total = None if spends is None else {"epsilon": spends.epsilon, "delta": spends.delta, "unit": spends.unit}
    return {"told": told, "total": total, "curve": curve}


def _spending(system: AnySystem, run: Run) -> Spending | None:
    try:
        return system.result.spends(None, system.configure(run.config))
    except HushrecError:  # the extra that counts is not there
        return None


# --- Comparisons -----------------------------------------------------------------------------------------------


def _look(look: Look) -> dict[str, Any] | None:
    if look.advantage is None:
        return None
    best = look.best
    told: dict[str, Any] = {"advantage": look.advantage, "rounds": look.num_rounds, "people": look.num_users}
    if best is not None:
        told |= {"attack": best.attack, "role": best.role, "measure": best.measure, "score": best.score}
        told |= {"chance": best.chance, "stand_in": best.is_of_stand_in}
    return told


def _row(row: Row, published: Row | None) -> dict[str, Any]:
    has_change = published is not None and row.switches and not row.fault and not published.fault
    return {
        "system": row.system,
        "title": row.title,
        "switches": row.switches,
        "metric": row.metric,
        "accuracy": row.accuracy,
        "up_bytes": row.up_bytes,
        "down_bytes": row.down_bytes,
        "cpu_seconds": row.cpu_seconds,
        "per": row.per,
        "leakage": row.leakage,
        "has_all_rows": row.has_all_rows,
        "has_repair": row.has_repair,
        "looks": {name: _look(getattr(row, name)) for name in ("server", "others", "together", "active")},
        "fault": row.fault,
        "is_error": bool(row.metric) and is_error(row.metric),
        "change": changes(published, row) if has_change and published is not None else "",
    }


def _survey(survey: Survey, origin: str) -> dict[str, Any]:
    published = {row.system: row for row in survey.rows if not row.switches}
    return {
        "data": survey.data,
        "origin": origin,
        "date": survey.date,
        "heading": heading_of(survey),
        "notes": lines_below(survey),
        "rows": [_row(row, published.get(row.system)) for row in survey.rows],
    }


def routes(site: Site) -> list[Route]:
    """`/api/audit/...`"""
    top = site.runs_folder

    def runs(_request: Request) -> Response:
        """Runs that were audited, the newest first."""
        found = indexed(site).page(Query(filter="leakage>=0", limit=_MOST_RUNS))
        names = {"id": "id", "system": "system", "data": "data", "strongest": "leakage"}
        shown = [{name: row[column] for name, column in names.items()} for row in found["rows"]]
        return site.answer({"runs": shown, "num_runs": found["total"]})

    def one(request: Request) -> Response:
        """What was found in one run."""
        folder = site.folder_of(request.query_params.get("id"))
        run, kept = read_run(folder), read_audit(folder)
        about = {"id": request.query_params["id"], "system": run.system, "data": run.data, "config": run.config}
        # The command is for this machine's own terminal.
        about["command"] = shlex.join(["hushrec", "audit", str(folder)])
        if kept is None:
            return site.answer({**about, "audit": None, "ledger": ledger_of(run)})
        audit = {"date": kept.date, "rounds": kept.num_rounds, "verdicts": _verdicts(run, kept)}
        audit["findings"] = [_finding(one) for one in kept.findings]
        return site.answer({**about, "audit": audit, "ledger": ledger_of(run)})

    def comparisons(_request: Request) -> Response:
        """Systems as published beside repaired: what comes with hushrec, and what lies below the folder."""
        found = [_survey(survey, "measured with this version's sources") for survey in measured_surveys().values()]
        for folder in _folders_with(top, COMPARISON):
            try:
                found.append(_survey(read_survey(folder / COMPARISON), str(folder.relative_to(top))))
            except HushrecError:
                continue
        if not found:
            raise Problem(404, "there is no comparison; make one with: hushrec compare --data NAME --out DIR")
        return site.answer({"comparisons": found})

    return [
        Route("/api/audit/runs", runs),
        Route("/api/audit/run", one),
        Route("/api/audit/comparisons", comparisons),
    ]

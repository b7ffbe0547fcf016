"""A card says what a model is and what it reveals, and nothing of one person."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hushrec
from hushrec.audit.kept import KeptAudit, KeptFinding
from hushrec.handover.card import card_of
from hushrec.handover.public import public_command
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import run
from hushrec.runs.record import Run
from hushrec.runs.run_settings import RunSettings
from hushrec.runtime.in_process import RuntimeOptions

DATA = "synthetic:users=60,items=40,ratings=900"
QUICK: dict[str, Any] = {"num_rounds": 3, "num_factors": 4}


def made(system: str = "fedrec++", **settings: Any) -> Run:
    config = SYSTEMS[system].configure({**QUICK, **settings})
    return run(SYSTEMS[system], config, hushrec.load(DATA), RunSettings(), RuntimeOptions(threads=1))


@pytest.fixture(scope="module")
def done() -> Run:
    return made(rho=3, denoisers=1)


def test_a_card_says_what_was_trained_and_how_good_it_is(done: Run) -> None:
    card = card_of(replace(done, command=f"hushrec run fedrec++ --data {DATA} --rho 3"))
    lines = card.splitlines()
    assert lines[0] == "# Model card: fedrec++ on synthetic"
    assert "60 people, 40 items, 900 rows. It was made by a generator: no person is in it." in card
    assert f"`{done.folds[0].model_sha256}`" in card
    row = next(line for line in lines if line.startswith("| RMSE |"))
    shown = [done.mean["RMSE"], done.mean.get("RMSE, warm"), done.mean.get("RMSE, cold")]
    cells = ["" if value is None else f"{value:.4f}" for value in shown]
    assert [cell.strip() for cell in row.split("|")[2:5]] == cells
    assert "- `rho`: 3" in lines
    assert f"hushrec run fedrec++ --data {DATA} --rho 3" in lines


def test_a_card_says_what_is_revealed_to_whom(done: Run) -> None:
    card = card_of(done)
    assert "With these settings: **exposed**. Fedrec++" in card
    for count in done.folds[0].messages:
        assert (f"| {count.type} | {count.sender} to {count.receiver} |" in card) == bool(count.bytes)
    assert "Not audited." in card
    safe = card_of(made("fedrec", rho=0, secure_sums=True))
    assert "With these settings: **protected by what audits found**." in safe


def test_a_card_has_what_attacks_read(done: Run) -> None:
    found = [
        KeptFinding("one upload", "server", "exact ratings", 0.99, 0.35, (0.98, 1.0), [0.99]),
        KeptFinding("listed items", "server", "F1", 0.401, 0.4, (0.39, 0.41), [0.4]),
    ]
    lines = card_of(done, KeptAudit(3, "2026-01-01", found)).splitlines()
    assert "| one upload | server | exact ratings | 0.9900 | 0.3500 | reads it |" in lines
    assert "| listed items | server | F1 | 0.4010 | 0.4000 | learns nothing beyond chance |" in lines


def test_a_card_has_the_ledger_of_epsilon() -> None:
    pytest.importorskip("dp_accounting")
    done = made("fedrec", rho=0, secure_sums=True, epsilon_total=8.0)
    card = card_of(done)
    assert "Epsilon 8 at delta 1e-05 for one user in the whole run, at most." in card
    assert "The ledger of the run:" in card
    assert "- releases that one user is in: " in card
    assert "None: no epsilon bounds what the messages tell." in card_of(made())


def test_files_are_not_named(done: Run) -> None:
    command = "hushrec run pmf --data '/home/ann/her clinic.csv' --columns user=patient --items visits.csv --rho 3"
    own = replace(
        done,
        data="her clinic",
        command=command,
        provenance=replace(done.provenance, is_synthetic=False, names=("clinic ann",)),
    )
    card = card_of(own)
    assert "hushrec run pmf --data RATINGS --columns COLUMNS --items ITEMS --rho 3" in card.splitlines()
    assert card.splitlines()[0] == "# Model card: fedrec++ on data of its owner"
    for secret in ("clinic", "ann", "patient", "visits"):
        assert secret not in card.replace("announc", "")
    assert public_command(replace(own, command="hushrec run drift --data ml-1m --owners genre")).endswith("genre")


def test_files_are_not_named_where_an_equals_sign_stands(done: Run) -> None:
    """In a folder of elsewhere a command is as somebody typed it."""
    typed = "hushrec run pmf '--data=/home/ann/her clinic.csv' --columns=user=patient --rho=3 --owners=genre"
    told = public_command(replace(done, command=typed))
    assert told == "hushrec run pmf --data=RATINGS --columns=COLUMNS --rho=3 --owners=genre"
    assert public_command(replace(done, command="hushrec run pmf --data=ml-1m")).endswith("--data=ml-1m")


def test_an_estimator_has_a_card(tmp_path: Path) -> None:
    split = next(hushrec.k_folds(hushrec.load(DATA)))
    model = hushrec.FedRec(rho=1, **QUICK).fit(split.train, stop_early=False, progress=False)
    card = model.card(out=tmp_path / "card.md")
    assert (tmp_path / "card.md").read_text(encoding="utf-8") == card
    assert "Not measured: it was fitted to all rows" in card
    assert "hushrec.FedRec(rho=1" in card
    assert f"{model.evaluate(split.test)['RMSE']:.4f}" in model.card(split.test)

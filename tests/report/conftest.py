from dataclasses import replace

import pytest

import hushrec
from hushrec.registry import system_named
from hushrec.runs.folds import run
from hushrec.runs.record import Run
from hushrec.runs.run_settings import RunSettings
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.settings import build

DATA = "synthetic:users=80,items=50,ratings=1500"


@pytest.fixture(scope="session")
def runs() -> dict[str, Run]:
    """Small runs of two folds on synthetic data."""
    data = hushrec.load(DATA)
    wanted = {
        "pmf": ("pmf", {}),
        "plain": ("fedrec", {"rho": 0}),
        "noisy": ("fedrec", {"rho": 2}),
        "denoised": ("fedrec++", {"rho": 2, "denoisers": 2}),
    }
    made = {}
    for name, (system_name, settings) in wanted.items():
        system = system_named(system_name)
        config = build(system.config, {"num_rounds": 14, "num_factors": 3, **settings})
        made[name] = run(system, config, data, RunSettings(num_folds=2), RuntimeOptions(threads=1))
    return made


@pytest.fixture
def hostile(runs: dict[str, Run]) -> Run:
    """A run on a file with a name that is HTML, and mathematics to matplotlib."""
    return replace(runs["plain"], data="<script>alert('$x_1$ & \"y\"')</script>")

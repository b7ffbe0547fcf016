import pytest

from hushrec.data import synthetic
from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS
from hushrec.report.findings import caveats
from hushrec.runs.folds import run
from hushrec.runs.record import Run
from hushrec.runs.run_settings import RunSettings, settings_for
from hushrec.runtime.in_process import RuntimeOptions


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "random", "test_share": 0.0}, "test_share=0.0 is no share; use a number between 0 and 1"),
        ({"test_share": 0.0}, "test_share=0.0 is no share"),
        ({"test_share": 0.3}, "test_share=0.3 has no meaning with split='folds'; choose of: random, latest"),
        ({"split_at": "2024-01-31"}, "split_at='2024-01-31' needs split='global-time'"),
        ({"split": "global-time", "split_at": "soon"}, "split_at='soon' is no date"),
    ],
)
def test_wishes_that_cannot_be_met(settings: dict, message: str) -> None:
    with pytest.raises(HushrecError) as caught:
        RunSettings(**settings)
    assert str(caught.value).startswith(message)


def done(name: str, split: str) -> Run:
    system = SYSTEMS[name]
    settings = settings_for(system, split=split, min_raters=None)
    config = system.configure({"num_rounds": 1})
    return run(system, config, synthetic(40, 30, 600, seed=2), settings, RuntimeOptions(threads=1))


def test_systems_with_and_without_ratings_share_a_test() -> None:
    """The same rows, the same of them relevant, the same lengths and candidates; not so with folds."""
    rated, implicit = done("fedrec", "shared"), done("fcf", "shared")
    assert rated.folds[0].test_sha256 == implicit.folds[0].test_sha256 != ""
    assert rated.provenance.relevance_limit == implicit.provenance.relevance_limit is not None
    assert rated.provenance.min_raters == implicit.provenance.min_raters
    assert rated.at == implicit.at
    assert caveats([rated, implicit]) == [
        "all runs are tested on the same rows, and the same count as relevant: compare rankings, too"
    ]
    told = caveats([done("fedrec", "folds"), done("fcf", "folds")])
    assert any("others count as relevant (all, from 4 on): compare no rankings" in line for line in told)

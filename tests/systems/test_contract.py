"""Every system of the registry keeps the contract that hushrec ships; what our own owe besides is below."""

import importlib
import pkgutil
from typing import Any

import msgspec
import numpy as np
import pytest

import hushrec.systems
from hushrec.data import synthetic
from hushrec.data.holdings import USERS
from hushrec.errors import DivergedError, HushrecError, MissingExtraError
from hushrec.evaluation.feedback import EXPLICIT, IMPLICIT
from hushrec.privacy.homomorphic import imported
from hushrec.protocol import kept_arrays
from hushrec.registry import SYSTEMS, system_named
from hushrec.runs.folds import run as run_experiment
from hushrec.runs.run_settings import settings_for
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.testing import SystemContract

from .runs import (
    SMALL,
    Finished,
    Ratings,
    learning_rates,
    run,
    settings_of,
    some_events,
    some_partners,
    some_ratings,
)

# What MetaMF's network is shown of each user it remembers better than what users have in common.
OWN: dict[str, dict[str, Any]] = {"metamf": {"least_learned": 0.85}}

for _name, _system in SYSTEMS.items():
    _class = f"Test{_system.about.class_name}"
    globals()[_class] = type(_class, (SystemContract,), {"system": _name, **OWN.get(_name, {})})


# --- The registry ------------------------------------------------------------------------------------------


def test_registry_is_the_files_and_folders_of_systems() -> None:
    names = [found.name for found in pkgutil.iter_modules(hushrec.systems.__path__)]
    modules = {name: importlib.import_module(f"hushrec.systems.{name}") for name in names}
    ours = {name: system for name, system in SYSTEMS.items() if SYSTEMS.is_built_in(name)}
    assert {module.SYSTEM.name: module.SYSTEM for module in modules.values()} == ours
    for name, module in modules.items():
        assert module.SYSTEM.name == name.replace("_plus_plus", "++").replace("_", "-")


def test_unknown_system_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(HushrecError, match=r"no system 'fedrek'; choose from pmf, fedrec, fedrec\+\+"):
        system_named("fedrek")
    assert system_named("fedrec++") is SYSTEMS["fedrec++"]


# --- The contract itself -----------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", [{}, {"rho": 1}])
@pytest.mark.parametrize("error", [MissingExtraError("it is not there"), HushrecError("pip install it")])
def test_a_variant_without_its_extra_is_skipped_and_no_other_error_is(
    variant: dict[str, Any], error: HushrecError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: Any, **_values: Any) -> Any:
        raise error

    monkeypatch.setattr(SystemContract, "_job", fail)
    is_skipped = isinstance(error, MissingExtraError) and bool(variant)
    with pytest.raises(pytest.skip.Exception if is_skipped else HushrecError, match=str(error)):
        SystemContract()._run(values=variant)


def test_a_missing_extra_is_an_error_of_its_own() -> None:
    with pytest.raises(
        MissingExtraError,
        match=r"\AFun needs toys; install it with: pip install '\.\[fun\]' in the clone of hushrec\Z",
    ):
        imported("no_such_module", "Fun", "toys", "fun")


# --- Who is lost -------------------------------------------------------------------------------------------


def small(name: str, ratings: Ratings | None = None, **options: Any) -> Finished:
    return run(name, ratings or some_ratings(), **{**SMALL[name], **options})


KEYED_BY_PARTY: dict[str, dict[str, Any]] = {
    "pmf": {},
    "fedrec": {},
    "fedrec++": {"who_denoises": [0, 1, 2]},
    "fedrec-bpr": {"who_denoises": [0, 1, 2]},
    "sdcf": {},
    "sdcf-denoised": {"who_denoises": [0, 1, 2]},
    "fcf": {"clients_per_step": 0},
    "fedmf": {},
    # With private set intersection, vectors start from tokens that all partners, and so other ones, have blinded.
    "fedcore": {"alignment": "keyed-hash", "ratings": some_partners()},
    "drift": {"ratings": some_events()},
}
"""Here no draw is for all parties at once: one party more does not change the numbers of others."""


@pytest.mark.parametrize("name", KEYED_BY_PARTY)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_dropped_party_equals_one_that_never_took_part(name: str, threads: int) -> None:
    """The last one never answers. The others do what they do without it."""
    options = {"ratings": some_ratings(), "threads": threads, **KEYED_BY_PARTY[name]}
    ratings, last = options.pop("ratings"), (KEYED_BY_PARTY[name].get("ratings") or some_ratings()).last
    dropped = small(name, ratings, losses=lambda _round, _request, to: to == last, **options)
    fewer = ratings.without_the_last()
    without = small(name, fewer, **options)
    if name == "fedcore":
        kept, expected = kept_arrays(dropped.private), kept_arrays(without.private)
        pins, right = (msgspec.msgpack.decode(arrays.pop("pins").tobytes()) for arrays in (kept, expected))
        assert pins[: len(right)] == right
        for field, array in expected.items():
            np.testing.assert_array_equal(kept[field][: len(array)], array)
        return
    np.testing.assert_array_equal(dropped.item_factors, without.item_factors)
    np.testing.assert_array_equal(dropped.user_factors[: fewer.num_users], without.user_factors)


@pytest.mark.parametrize("name", ["fedrec", "fedrec++", "fedrec-bpr", "sdcf", "sdcf-denoised"])
def test_the_server_knows_whose_updates_counted(name: str) -> None:
    last = some_ratings().num_users - 1
    finished = small(name, losses=lambda number, _request, to: (to == last) & (number > 2))
    assert [state.counted_round[last] for state in finished.states] == [0, 1, 2, 2, 2]
    assert [state.counted_round[0] for state in finished.states] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "name", [name for name in SYSTEMS if SYSTEMS[name].about.hands_over_data and SYSTEMS[name].holders is USERS]
)
def test_a_server_without_any_data_says_so(name: str) -> None:
    what = "ratings" if SYSTEMS[name].feedback is EXPLICIT else "items"
    with pytest.raises(HushrecError, match=rf"\Ano client handed over its {what}; there is nothing to train on\Z"):
        small(name, losses=lambda _number, _request, to: to >= 0)


# --- What diverges -----------------------------------------------------------------------------------------

WHO = {"neucf": "model", "fedcore": "gradient( of the layers)?"}
"""Whose number is not finite: a client's update, a model of which one side has all, mail that does not tell."""


@pytest.mark.parametrize("name", [name for name in SYSTEMS if SYSTEMS[name].feedback is EXPLICIT])
@pytest.mark.parametrize("threads", [1, 2])
def test_divergence_names_round_client_and_remedy(name: str, threads: int) -> None:
    if SYSTEMS[name].about.learns_with is None:
        pytest.skip("learns nothing")
    who = WHO.get(name, r"update of client \d+")
    liars = "( or row_norm=, if somebody may lie)?"
    remedy = rf"round \d+: (the|a) {who} is not finite.* use a learning_rate= below 1000{liars}$"
    ratings = some_partners() if name == "fedcore" else some_ratings()
    with pytest.raises(DivergedError, match=remedy):
        small(name, ratings, learning_rate=1000.0, decay=1.0, num_rounds=30, threads=threads)


@pytest.mark.parametrize(
    ("name", "rate"),
    # FCF's clients solve for their vectors whatever the scale of V: nothing grows without end.
    [
        (name, rate)
        for name in SYSTEMS
        if SYSTEMS[name].feedback is IMPLICIT and name != "fcf"
        for rate in learning_rates(name)
    ],
)
def test_divergence_of_implicit_systems_is_refused_in_one_line(name: str, rate: str) -> None:
    """In a run, which measures after every round."""
    data, system = synthetic(24, 30, 200), SYSTEMS[name]
    config = system.configure(
        {**SMALL[name], **settings_of(name, {"num_factors": 5}), "num_rounds": 4, rate: 1e38}
    )
    with pytest.raises(HushrecError, match=r"\Around \d+: .*use .*learning.rate=? below 1e\+38.*\Z"):
        run_experiment(system, config, data, settings_for(system), RuntimeOptions(threads=1))
